"""How the capacity of an operator grows with its instances, and how service times scatter."""

from __future__ import annotations

import math
from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from penstock.dataflow.metrics import Floats, Integers

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Checked(BaseModel):
    """A part of a scenario: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class Linear(Checked):
    """Each instance brings as much as the first."""

    kind: Literal["linear"] = "linear"

    def scale_capacity(self, instances: Floats) -> Floats:
        """Return the capacity in multiples of that of one instance."""
        return instances


class Usl(Checked):
    """Universal scalability law: contention `alpha`, and `beta` for instances that wait for each other."""

    kind: Literal["usl"]
    alpha: Annotated[Finite, Field(ge=0, le=1)]
    beta: Annotated[Finite, Field(ge=0, le=1)] = 0.0

    def scale_capacity(self, instances: Floats) -> Floats:
        """Return the capacity in multiples of that of one instance."""
        others = instances - 1
        return instances / (1 + self.alpha * others + self.beta * instances * others)


class Table(Checked):
    """Capacity in records per second of all instances together, as measured at some instance counts.

    Between two counts it is linear, below the first proportional, above the last it grows no more. It may
    fall, as measured capacities sometimes do.
    """

    kind: Literal["table"]
    capacity: Annotated[
        dict[Annotated[int, Field(ge=1)], Annotated[Finite, Field(gt=0)]], Field(min_length=1)
    ]

    @field_validator("capacity")
    @classmethod
    def _in_order(cls, capacity: dict[int, float]) -> dict[int, float]:
        return dict(sorted(capacity.items()))

    def records_per_second(self, instances: Floats) -> Floats:
        """Return the capacity of so many instances."""
        counts = np.array([0, *self.capacity], dtype=np.float64)
        reached: Floats = np.interp(instances, counts, np.array([0.0, *self.capacity.values()]))
        return reached


Curve = Annotated[Linear | Usl | Table, Field(discriminator="kind")]


def limit_skew(instances: Integers, skew: float | Floats) -> Floats:
    """Return how much more than the average the busiest instance gets; it cannot get more than all."""
    return np.minimum(skew, np.maximum(instances - 1, 0))


def tabulate_capacity(curve: Linear | Usl | Table, service_seconds: float | None, most: int) -> Floats:
    """Return records per second with 0, 1, ... `most` instances; no service time means no limit."""
    instances = np.arange(most + 1, dtype=np.float64)
    if isinstance(curve, Table):
        return curve.records_per_second(instances)
    if service_seconds is None:
        return np.where(instances > 0, np.inf, 0.0)
    return curve.scale_capacity(instances) / service_seconds


class Distribution(Checked):
    """How service times scatter; `cv` is their coefficient of variation, standard deviation over mean.

    `exponential` is memoryless, as in M/M/k. `lognormal` has many quick records and a long tail. `gamma` goes
    from constant to wild: Erlang for a cv below 1, hyperexponential above.
    """

    kind: Literal["deterministic", "exponential", "lognormal", "gamma"] = "deterministic"
    cv: Annotated[Finite | None, Field(gt=0, le=100)] = None

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, written: object) -> object:
        return {"kind": written} if isinstance(written, str) else written

    @model_validator(mode="after")
    def _check_cv(self) -> Distribution:
        wanted = self.kind in ("lognormal", "gamma")
        if wanted != (self.cv is not None):
            raise ValueError(f"{self.kind} {'needs a' if wanted else 'takes no'} cv")
        return self

    @property
    def squared_variation(self) -> float:
        """c_s²."""
        return float(self.kind == "exponential") if self.cv is None else self.cv**2

    def draw_factors(self, random: np.random.Generator, count: int) -> Floats:
        """Draw service times in multiples of their mean."""
        squared = self.squared_variation
        if self.kind == "lognormal":
            spread = math.log1p(squared)
            return np.exp(math.sqrt(spread) * random.standard_normal(count) - spread / 2)
        if self.kind == "gamma":
            return random.standard_gamma(1 / squared, count) * squared
        return np.ones(count) if self.kind == "deterministic" else random.standard_exponential(count)


KINDS = get_args(Distribution.model_fields["kind"].annotation)
"""The names of distributions."""
