"""How service times scatter around their mean."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from penstock.dataflow.metrics import Floats

Cv = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
"""Coefficient of variation: standard deviation over mean."""


class Deterministic(BaseModel):
    """Every record costs the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["deterministic"] = "deterministic"

    @property
    def squared_variation(self) -> float:
        """c_s²."""
        return 0.0

    def factors(self, random: np.random.Generator, count: int) -> Floats:
        """Service times in multiples of their mean."""
        return np.ones(count)


class Exponential(BaseModel):
    """Memoryless, as in M/M/k."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["exponential"]

    @property
    def squared_variation(self) -> float:
        """c_s²."""
        return 1.0

    def factors(self, random: np.random.Generator, count: int) -> Floats:
        """Service times in multiples of their mean."""
        return random.standard_exponential(count)


class Lognormal(BaseModel):
    """Many quick records and a long tail."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["lognormal"]
    cv: Cv

    @property
    def squared_variation(self) -> float:
        """c_s²."""
        return self.cv**2

    def factors(self, random: np.random.Generator, count: int) -> Floats:
        """Service times in multiples of their mean."""
        spread = math.log1p(self.cv**2)
        return np.exp(math.sqrt(spread) * random.standard_normal(count) - spread / 2)


class Gamma(BaseModel):
    """Between constant and wild by its coefficient of variation: Erlang below 1, hyperexponential above."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["gamma"]
    cv: Cv

    @property
    def squared_variation(self) -> float:
        """c_s²."""
        return self.cv**2

    def factors(self, random: np.random.Generator, count: int) -> Floats:
        """Service times in multiples of their mean."""
        drawn: Floats = random.standard_gamma(1 / self.cv**2, count) * self.cv**2
        return drawn


def _written(value: Any) -> Any:
    """`exponential` stands for {kind: exponential}."""
    return {"kind": value} if isinstance(value, str) else value


KINDS = ("deterministic", "exponential", "lognormal", "gamma")
Distribution = Annotated[
    Annotated[Deterministic | Exponential | Lognormal | Gamma, Field(discriminator="kind")],
    BeforeValidator(_written),
]
