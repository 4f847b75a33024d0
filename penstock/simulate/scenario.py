"""What is simulated: a dataflow, its load, how it scales, and the settings of the loop; all checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from penstock.durations import parse_duration
from penstock.simulate.capacity import Curve, Finite, Linear

Seconds = Annotated[float, BeforeValidator(parse_duration)]
LONGEST_SECONDS = 366 * 86400


def _whole_seconds(written: object) -> float:
    seconds = parse_duration(written)
    if seconds != int(seconds):
        raise ValueError(f"{written!r} is not a whole number of seconds, the step of the simulation")
    return seconds


WholeSeconds = Annotated[float, BeforeValidator(_whole_seconds)]


class Checked(BaseModel):
    """Frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class CsvRate(Checked):
    """A recorded rate: a CSV file with a header; each rate holds until the next row's time."""

    csv: str = Field(min_length=1)
    time: str = "second"
    rate: str = "rate"
    scale: Finite = Field(1.0, gt=0)


class SourceSpec(Checked):
    """Where records come from.

    `keeps_backlog: false` is a generator that produces less while it is held back, instead of letting
    records wait. Without a service time it reads without limit.
    """

    rate: str | CsvRate
    instances: int = Field(1, ge=1, le=100_000)
    service_time: Annotated[
        float | None, BeforeValidator(lambda v: v if v is None else parse_duration(v))
    ] = Field(None, gt=0)
    slots: int = Field(1, ge=1, le=10_000)
    keeps_backlog: bool = True


class OperatorSpec(Checked):
    """One operator: whom it reads from, what a record costs, and how many wait before it at most.

    `slots` is what one instance takes; `skew` how much more than the average, as a fraction, the busiest
    instance gets, and so by how much the operator is full earlier; `queue` none means that nothing bounds
    the records that wait.
    """

    inputs: tuple[str, ...] = Field(min_length=1)
    service_time: Annotated[
        float | None, BeforeValidator(lambda v: v if v is None else parse_duration(v))
    ] = Field(None, gt=0)
    curve: Curve = Linear()
    selectivity: Finite = Field(1.0, ge=0)
    instances: int = Field(1, ge=1, le=100_000)
    slots: int = Field(1, ge=1, le=10_000)
    skew: Finite = Field(0.0, ge=0)
    queue: Annotated[Finite | None, Field(gt=0)] = None
    variability: Finite = Field(0.0, ge=0)
    scalable: bool = True


class ScalingSpec(Checked):
    """How a change of parallelism takes effect.

    `restart` stops everything for the pause; with `live` work goes on, and the change is there after it.
    """

    kind: Literal["restart", "live"] = "live"
    pause: WholeSeconds = Field(0.0, ge=0, le=86400)


class Slowdown(Checked):
    """A time in which an operator has only a share of its capacity, as with a remote service that is slow."""

    operator: str
    start: WholeSeconds = Field(ge=0)
    end: WholeSeconds = Field(gt=0)
    capacity: Finite = Field(gt=0)


class Scenario(Checked):
    """A whole experiment; `settings` are those of the loop, the manager and the policies."""

    description: str = ""
    duration: WholeSeconds = Field(gt=0, le=LONGEST_SECONDS)
    sources: Mapping[str, SourceSpec] = Field(min_length=1)
    operators: Mapping[str, OperatorSpec] = Field(min_length=1)
    scaling: ScalingSpec = Field(default_factory=lambda: ScalingSpec.model_validate({}))
    slowdowns: tuple[Slowdown, ...] = ()
    noise: Finite = Field(0.0, ge=0, le=1)
    settings: Mapping[str, Any] = Field(default_factory=dict)
