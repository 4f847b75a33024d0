"""How the capacity of an operator grows with its instances."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from penstock.dataflow.metrics import Floats, Integers

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Linear(BaseModel):
    """Each instance brings as much as the first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["linear"] = "linear"

    def speed_up(self, instances: Floats) -> Floats:
        """Capacity in multiples of that of one instance."""
        return instances


class Usl(BaseModel):
    """Universal scalability law: contention `alpha`, and `beta` for instances that wait for each other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["usl"]
    alpha: Annotated[Finite, Field(ge=0, le=1)]
    beta: Annotated[Finite, Field(ge=0, le=1)] = 0.0

    def speed_up(self, instances: Floats) -> Floats:
        """Capacity in multiples of that of one instance."""
        others = instances - 1
        return instances / (1 + self.alpha * others + self.beta * instances * others)


class Table(BaseModel):
    """Capacity in records per second of all instances together, as measured at some instance counts.

    Between two counts it is linear, below the first proportional, above the last it grows no more. It may
    fall, as measured capacities sometimes do.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["table"]
    capacity: Annotated[
        dict[Annotated[int, Field(ge=1)], Annotated[Finite, Field(gt=0)]], Field(min_length=1)
    ]

    @field_validator("capacity")
    @classmethod
    def _in_order(cls, capacity: dict[int, float]) -> dict[int, float]:
        return dict(sorted(capacity.items()))

    def records_per_second(self, instances: Floats) -> Floats:
        """Capacity of so many instances."""
        counts = np.array([0, *self.capacity], dtype=np.float64)
        reached: Floats = np.interp(instances, counts, np.array([0.0, *self.capacity.values()]))
        return reached


Curve = Annotated[Linear | Usl | Table, Field(discriminator="kind")]


def skew_with(instances: Integers, skew: float | Floats) -> Floats:
    """How much more than the average the busiest instance gets; it cannot get more than all."""
    return np.minimum(skew, np.maximum(instances - 1, 0))


def capacities(curve: Linear | Usl | Table, service_seconds: float | None, most: int) -> Floats:
    """Records per second with 0, 1, ... `most` instances; no service time means no limit."""
    instances = np.arange(most + 1, dtype=np.float64)
    if isinstance(curve, Table):
        return curve.records_per_second(instances)
    if service_seconds is None:
        return np.where(instances > 0, np.inf, 0.0)
    return curve.speed_up(instances) / service_seconds
