"""AuTraScale's first phase: the least size that gives all the throughput there is (section III-C)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, OperatorQuery, SlotWindow
from penstock.decide.autrascale.score import Size
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.policy import Hold, Scale

KEPT_READINGS = 5
"""Medians are taken over so many windows: enough against outliers, few enough to follow a change."""

SHORT = 0.05
"""Share of the offered rate by which the observed one may fall short before that is believed."""

SAME_THROUGHPUT = 0.03
"""In the review, throughputs that differ by less than this are alike, and the smaller size is chosen."""

NEAR = 1.5
"""Up to so many times the recommended size, a utilisation band may keep what is held; beyond it is waste."""


FALLING = 0.8
"""A latency that fell to this share of the one before was still on its way; no noise is as large."""

SHRINKING = 0.99
"""A backlog that is at most this share of the one a window ago is being read, and not just waiting."""


@dataclass(slots=True)
class Readings:
    """Measurements at one size since it is held, without the windows right after a change."""

    size: Size
    skipped: int = 0
    latencies: list[float] = field(default_factory=list)
    observed: list[float] = field(default_factory=list)
    offered: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    """The largest share of its instances that a unit needs, un-rounded."""
    totals: list[float] = field(default_factory=list)
    """Instances needed in all."""
    backlog_seconds: float | None = None
    began: float = -math.inf
    """The end of the first window at this size, if another one was held before."""

    @property
    def count(self) -> int:
        """Windows measured, up to those kept."""
        return len(self.observed)

    def add(self, observed: float, offered: float, load: float, total: float) -> None:
        """Take in one window; the oldest is dropped."""
        kept = (self.observed, self.offered, self.loads, self.totals)
        for values, value in zip(kept, (observed, offered, load, total), strict=True):
            values.append(value)
            del values[:-KEPT_READINGS]

    def add_latency(self, seconds: float) -> None:
        """Take in the latency of a window that has one; what came before a steep fall tells nothing."""
        if self.latencies and seconds < FALLING * self.latencies[-1]:
            self.latencies.clear()
        self.latencies.append(seconds)
        del self.latencies[:-KEPT_READINGS]

    def is_draining(self, backlog_seconds: float, target_seconds: float) -> bool:
        """Tell whether this window's latency comes from an older backlog and not from the size."""
        before, self.backlog_seconds = self.backlog_seconds, backlog_seconds
        if before is None:
            return backlog_seconds > target_seconds
        return before > target_seconds and backlog_seconds <= SHRINKING * before

    @property
    def latency(self) -> float:
        """The median latency seen at this size."""
        return statistics.median(self.latencies)

    @property
    def throughput(self) -> float:
        """The median observed rate at this size."""
        return statistics.median(self.observed)

    @property
    def falls_short(self) -> bool:
        """True if less is read than is offered."""
        return self.throughput < (1 - SHORT) * statistics.median(self.offered)


@dataclass(frozen=True, slots=True)
class Base:
    """The end of the phase: the size that throughput needs; `limited` when the rate is not reached by it."""

    size: Size
    limited: bool


@dataclass(slots=True)
class ThroughputPhase:
    """Goes from recommendation to recommendation until two are equal, then reviews what was seen.

    The recommendation is DS2's, from which equation 3 is taken; un-rounded rates flow downstream, since an
    operator that was rounded up passes on no more records than it gets.
    """

    most_steps: int
    patience: int
    seen: dict[Size, float] = field(default_factory=dict)
    """Size → observed rate, for every size that was held in this phase."""
    waited: int = 0
    last: Size | None = None

    def note(self, readings: Readings) -> None:
        """Remember how far the held size comes, and for how long it is held."""
        self.waited = self.waited + 1 if readings.size == self.last else 1
        self.last = readings.size
        self.seen[readings.size] = readings.throughput

    def find_base(self, need: Size, readings: Readings) -> Base | None:
        """Return the base once two recommendations are equal, or once no further step is made."""
        held = readings.size
        if need != held and not self._is_stuck(need, readings):
            return None
        if not readings.falls_short:
            return Base(held, limited=False)
        # a start that is slow to read must not pass for a limit that lasts
        return self._review() if readings.count >= KEPT_READINGS else None

    def _is_stuck(self, need: Size, readings: Readings) -> bool:
        """Tell whether steps lead nowhere, or guardrails keep a size close to the recommended one."""
        if len(self.seen) > self.most_steps:
            return True
        close = all(held <= NEAR * wanted for held, wanted in zip(readings.size, need, strict=True))
        return self.waited > self.patience and close and not readings.falls_short

    def _review(self) -> Base:
        """Take the smallest of the sizes with the most throughput: more brought nothing (section V-B)."""
        most = max(self.seen.values())
        alike = [size for size, rate in self.seen.items() if rate >= (1 - SAME_THROUGHPUT) * most]
        return Base(min(alike, key=lambda size: (sum(size), size)), limited=True)


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
    """Records per second from outside, whatever sizes let through; each model belongs to one rate."""
    is_catching_up: bool
    backlog_seconds: float
    """How long the offered records of the backlog took to come."""
    latency_seconds: float | None
    answer: Hold | Scale
    """DS2's answer for the offered rate."""

    @property
    def load(self) -> float:
        """The largest share of its instances that a unit needs."""
        return max(need / held for need, held in zip(self.exact, self.held, strict=True))


def list_scaled_units(window: ApplicationWindow, unscalable: frozenset[str]) -> tuple[str, ...]:
    """List the dimensions of the search: the executors, or each operator that gains from instances."""
    if isinstance(window, SlotWindow):
        return (EXECUTORS,)
    names = [
        operator.name
        for query in window.queries
        for operator, scalable in zip(query.graph.operators, query.graph.is_scalable, strict=True)
        if scalable and operator.name not in unscalable
    ]
    return tuple(sorted(names))


def read_needs(
    window: ApplicationWindow, steady: Hold | Scale, hurried: Hold | Scale, bounds: SizeBounds, goals: Goals
) -> Needs | NotReady:
    """Put the window and DS2's two answers together; NotReady says what is missing."""
    units = list_scaled_units(window, goals.unscalable)
    if not units:
        return NotReady("no operator can be scaled", "an operator that gains from more instances")
    unknown = [unit for unit in units if window.parallelism.get(unit, 0) < 1]
    if unknown:
        return NotReady(f"how much is held of {unknown[0]!r} is unknown", "its parallelism")
    sources = [source for query in window.queries for source in query.readings.values()]
    offered = sum(source.offered_per_second for source in sources)
    rate = sum(source.offered_per_second for query in window.queries for source in query.sources.values())
    if not (rate > 0 and offered < math.inf):
        return NotReady("nothing is offered, so no size can be judged", "records")
    backlogs = _measure_backlogs(window)
    held = tuple(window.parallelism[unit] for unit in units)
    return Needs(
        units=units,
        held=held,
        steady=_bound_need(steady, units, held, bounds),
        hurried=_bound_need(hurried, units, held, bounds),
        exact=_exact(steady, units, held),
        offered=offered,
        observed=sum(source.observed_per_second for source in sources),
        rate=rate,
        is_catching_up=any(one > BACKLOG_SHARE * goals.catch_up for one in backlogs),
        backlog_seconds=max(backlogs),
        latency_seconds=_find_worst_latency(window),
        answer=steady,
    )


def _measure_backlogs(window: ApplicationWindow) -> list[float]:
    """Measure backlogs in seconds of what is offered, of all sources or of each topic of an operator."""
    pairs = [
        (topic.overdue_records, topic.offered_per_second)
        for query in window.queries
        if isinstance(query, OperatorQuery)
        for topic in query.topics.values()
    ]
    if not pairs:
        sources = [source for query in window.queries for source in query.readings.values()]
        waiting = sum(source.backlog_records for source in sources)
        pairs = [(waiting, sum(source.offered_per_second for source in sources))]
    return [records / offered if offered > 0 else 0.0 for records, offered in pairs]


def _bound_need(answer: Hold | Scale, units: tuple[str, ...], held: Size, bounds: SizeBounds) -> Size:
    wanted: Mapping[str, int] = answer.parallelism if isinstance(answer, Scale) else {}
    return tuple(bounds.clamp(wanted.get(unit, size)) for unit, size in zip(units, held, strict=True))


def _exact(answer: Hold | Scale, units: tuple[str, ...], held: Size) -> tuple[float, ...]:
    exact: Mapping[str, float] = answer.exact if isinstance(answer, Scale) else {}
    return tuple(float(exact.get(unit, size)) for unit, size in zip(units, held, strict=True))


def _find_worst_latency(window: ApplicationWindow) -> float | None:
    """Return the latency of the slowest query; None if one is unknown, since it might be that one."""
    seen = [query.latency_seconds for query in window.queries]
    known = [seconds for seconds in seen if seconds is not None and 0 < seconds < math.inf]
    return max(known) if known and len(known) == len(seen) else None
