"""What AuTraScale reads from a window: what is held, what throughput needs, and the latency seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, Execution
from penstock.decide.autrascale_score import Size
from penstock.decide.autrascale_settings import AutraScaleSettings
from penstock.decide.policy import Hold, Scale

BACKLOG_SHARE = 0.05
"""A backlog counts once reading it in the catch-up time takes this share of the offered rate.

What merely waits in queues is latency, which the search deals with, and no reason to catch up.
"""


@dataclass(frozen=True, slots=True)
class Needs:
    """One window in the terms of the search; sizes are within the limits of the settings.

    `steady` sustains the offered rate; `hurried` also reads the backlog in the catch-up time.
    `exact` is the need before rounding up.
    """

    units: tuple[str, ...]
    held: Size
    steady: Size
    hurried: Size
    exact: tuple[float, ...]
    offered: float
    observed: float
    rate: float
    """What the outside world sends, whatever sizes let through: what a model is of."""
    is_catching_up: bool
    backlog_seconds: float
    """How long the offered records of the backlog took to come."""
    latency_seconds: float | None
    answer: Hold | Scale
    """What DS2 says of the offered rate."""

    @property
    def load(self) -> float:
        """The largest share of its instances that a unit needs."""
        return max(need / held for need, held in zip(self.exact, self.held, strict=True))


def scaled_units(window: ApplicationWindow, unscalable: frozenset[str]) -> tuple[str, ...]:
    """The dimensions of the search: the executors, or every operator that gains from more instances."""
    if window.execution is Execution.SHARED_SLOTS:
        return (EXECUTORS,)
    names = [
        operator.name
        for query in window.queries
        for operator, scalable in zip(query.graph.operators, query.graph.is_scalable, strict=True)
        if scalable and operator.name not in unscalable
    ]
    return tuple(sorted(names))


def read_needs(
    window: ApplicationWindow, steady: Hold | Scale, hurried: Hold | Scale, settings: AutraScaleSettings
) -> Needs | NotReady:
    """Put the window and DS2's two answers together; NotReady says what is missing."""
    units = scaled_units(window, settings.throughput.unscalable)
    if not units:
        return NotReady("no operator can be scaled", "an operator that gains from more instances")
    unknown = [unit for unit in units if window.parallelism.get(unit, 0) < 1]
    if unknown:
        return NotReady(f"how much is held of {unknown[0]!r} is unknown", "its parallelism")
    sources = [source for query in window.queries for source in query.sources.values()]
    offered = sum(source.offered_per_second for source in sources)
    rate = sum(source.offered_per_second for query in window.queries for source in query.outside)
    if not (rate > 0 and offered < math.inf):
        return NotReady("nothing is offered, so no size can be judged", "records")
    backlogs = _backlogs(window)
    held = tuple(window.parallelism[unit] for unit in units)
    return Needs(
        units=units,
        held=held,
        steady=_needed(steady, units, held, settings),
        hurried=_needed(hurried, units, held, settings),
        exact=_exact(steady, units, held),
        offered=offered,
        observed=sum(source.observed_per_second for source in sources),
        rate=rate,
        is_catching_up=any(one > BACKLOG_SHARE * settings.throughput.catch_up_seconds for one in backlogs),
        backlog_seconds=max(backlogs),
        latency_seconds=_worst_latency(window),
        answer=steady,
    )


def _backlogs(window: ApplicationWindow) -> list[float]:
    """Backlogs in seconds of what is offered: of all sources, or of each operator with a topic of its own."""
    pairs = [
        (records, query.sources[name].offered_per_second)
        for query in window.queries
        for name, records in query.overdue_records.items()
        if name in query.sources
    ]
    if not pairs:
        sources = [source for query in window.queries for source in query.sources.values()]
        waiting = sum(source.backlog_records for source in sources)
        pairs = [(waiting, sum(source.offered_per_second for source in sources))]
    return [records / offered if offered > 0 else 0.0 for records, offered in pairs]


def _needed(answer: Hold | Scale, units: tuple[str, ...], held: Size, settings: AutraScaleSettings) -> Size:
    wanted: Mapping[str, int] = answer.parallelism if isinstance(answer, Scale) else {}
    least, most = settings.least_parallelism, settings.most_parallelism
    return tuple(
        min(max(wanted.get(unit, size), least), most) for unit, size in zip(units, held, strict=True)
    )


def _exact(answer: Hold | Scale, units: tuple[str, ...], held: Size) -> tuple[float, ...]:
    exact: Mapping[str, float] = answer.exact if isinstance(answer, Scale) else {}
    return tuple(float(exact.get(unit, size)) for unit, size in zip(units, held, strict=True))


def _worst_latency(window: ApplicationWindow) -> float | None:
    """The slowest query counts; a query whose latency is unknown might be that one."""
    seen = [query.latency_seconds for query in window.queries]
    known = [seconds for seconds in seen if seconds is not None and 0 < seconds < math.inf]
    return max(known) if known and len(known) == len(seen) else None
