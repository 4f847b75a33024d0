"""A scenario: a dataflow, its load, how it scales, and the settings of the loop; all checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from penstock.simulate.capacity import Checked, Curve, Distribution, Finite, Linear
from penstock.units.fields import parse_duration

Seconds = Annotated[float, BeforeValidator(parse_duration)]
ServiceTime = Annotated[float | None, BeforeValidator(lambda v: v if v is None else parse_duration(v))]
Share = Annotated[Finite, Field(gt=0, le=1)]
LONGEST_SECONDS = 366 * 86400


def _whole_seconds(written: object) -> float:
    seconds = parse_duration(written)
    if seconds != int(seconds):
        raise ValueError(f"{written!r} is not a whole number of seconds, the step of the simulation")
    return seconds


WholeSeconds = Annotated[float, BeforeValidator(_whole_seconds)]
NoOrWholeSeconds = Annotated[float | None, BeforeValidator(lambda v: v if v is None else _whole_seconds(v))]


class CsvRate(Checked):
    """A recorded rate: a CSV file with a header; each rate holds until the next row's time."""

    csv: str = Field(min_length=1)
    time: str = "second"
    rate: str = "rate"
    scale: Finite = Field(1.0, gt=0)


class SourceSpec(Checked):
    """Where records come from.

    `keeps_backlog: false` is a generator that produces less while it is held back, instead of letting
    records wait. Without a service time it reads without limit. `slots` are those that it takes of the cores
    which instances share: none where it is outside. `tasks` and `task_time` count with shared slots alone,
    where reading is a stage like any other.
    """

    rate: str | CsvRate
    arrivals: Literal["even", "poisson"] = "even"
    instances: int = Field(1, ge=1, le=100_000)
    service_time: ServiceTime = Field(None, gt=0)
    slots: int = Field(1, ge=0, le=10_000)
    keeps_backlog: bool = True
    tasks: int = Field(8, ge=1, le=100_000)
    task_time: Seconds = Field(0.0, ge=0)


class OperatorSpec(Checked):
    """One operator: whom it reads from, what a record costs, and how many wait before it at most.

    `slots` is what one instance takes; `skew` how much more than the average, as a fraction, the busiest
    instance gets, and so by how much the operator is full earlier; `queue` none means that nothing bounds
    the records that wait. `limit` is what a remote service takes in a second, however many ask it;
    `coordination` is the latency that each further instance brings. `variability`, where it is not given,
    follows from the distribution of service times and from the arrivals. `tasks` and `task_time` count with
    shared slots alone.
    """

    inputs: tuple[str, ...] = Field(min_length=1)
    service_time: ServiceTime = Field(None, gt=0)
    distribution: Distribution = Distribution()
    curve: Curve = Linear()
    limit: Annotated[Finite | None, Field(gt=0)] = None
    coordination: Seconds = Field(0.0, ge=0)
    selectivity: Finite = Field(1.0, ge=0)
    instances: int = Field(1, ge=1, le=100_000)
    slots: int = Field(1, ge=1, le=10_000)
    skew: Finite = Field(0.0, ge=0)
    queue: Annotated[Finite | None, Field(gt=0)] = None
    variability: Annotated[Finite | None, Field(ge=0)] = None
    scalable: bool = True
    tasks: int = Field(8, ge=1, le=100_000)
    task_time: Seconds = Field(0.0, ge=0)


class ScalingSpec(Checked):
    """How a change of parallelism takes effect.

    `restart` stops everything for the pause; with `live` work goes on, and the change is there after it. A
    new instance has the share `cold` of its speed for the time `warm_up`.
    """

    kind: Literal["restart", "live"] = "live"
    pause: WholeSeconds = Field(0.0, ge=0, le=86400)
    warm_up: WholeSeconds = Field(0.0, ge=0, le=86400)
    cold: Share = 0.5


class Slowdown(Checked):
    """A time in which an operator has only a share of its capacity, as with a remote service that is slow."""

    operator: str
    start: WholeSeconds = Field(ge=0)
    end: WholeSeconds = Field(gt=0)
    capacity: Finite = Field(gt=0)


class Failures(Checked):
    """Instances of an operator that are held and do nothing: once from `start` on, or again and again.

    With `every`, the times between failures are exponential with that mean, drawn from the seed.
    """

    operator: str
    start: NoOrWholeSeconds = Field(None, ge=0)
    every: NoOrWholeSeconds = Field(None, gt=0)
    lasts: WholeSeconds = Field(gt=0)
    instances: int = Field(1, ge=1)


class Neighbours(Checked):
    """Others on the same machines: again and again, for `lasts` on average, all have a share of capacity."""

    every: WholeSeconds = Field(gt=0)
    lasts: WholeSeconds = Field(gt=0)
    capacity: Share


class Interference(Checked):
    """Instances that share machines slow each other down.

    Beyond `cores` slots in all, every instance is slower by 1 + weight · (slots / cores - 1).
    """

    cores: int | None = Field(None, ge=1)
    weight: Finite = Field(1.0, ge=0)
    neighbours: Neighbours | None = None


class BatchSpec(Checked):
    """Micro-batches on slots that all stages share: how often, what none can shorten, and the executors."""

    trigger: WholeSeconds = Field(10.0, ge=1)
    serial: Seconds = Field(0.2, ge=0)
    executors: int = Field(1, ge=1, le=10_000)
    cores: int = Field(1, ge=1, le=1_000)
    most_records: Annotated[Finite | None, Field(gt=0)] = None


class Scenario(Checked):
    """A whole experiment; `settings` are those of the loop, the manager and the policies.

    `latency: events` follows single records instead of estimating their waiting. `batches` makes it an
    application whose operators share slots, as on Spark. What is measured is off by `noise`, and known only
    `metrics_lag` later.
    """

    description: str = ""
    latency: Literal["estimated", "events"] = "estimated"
    batches: BatchSpec | None = None
    duration: WholeSeconds = Field(gt=0, le=LONGEST_SECONDS)
    sources: Mapping[str, SourceSpec] = Field(min_length=1)
    operators: Mapping[str, OperatorSpec] = Field(min_length=1)
    scaling: ScalingSpec = Field(default_factory=lambda: ScalingSpec.model_validate({}))
    slowdowns: tuple[Slowdown, ...] = ()
    failures: tuple[Failures, ...] = ()
    interference: Interference | None = None
    noise: Finite = Field(0.0, ge=0, le=1)
    metrics_lag: WholeSeconds = Field(0.0, ge=0, le=3600)
    settings: Mapping[str, Any] = Field(default_factory=dict)
