"""The manager's memory: how each window kept up with its sources, decisions, and actions on trial.

All of it is frozen and bounded, and enough to judge again in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from penstock.dataflow.rates import find_growing_queues
from penstock.dataflow.window import ApplicationWindow, OperatorWindow, SlotWindow, SourceRate
from penstock.decide.policy import Hold, Scale

NOISE = 0.05
"""Share of the offered records by which a backlog may grow before that is believed.

A backlog is sampled at some moment between two batches, so small growth is mostly the moment.
"""
MOST_DECISIONS = 512
"""The number of decisions kept one by one; older ones are merged, never forgotten too early."""
FEWEST_DECISIONS = 128
"""Decisions that are kept whatever their age, for activation."""
MATERIAL_CHANGE = 0.2
"""Change of the offered rate, as a fraction, after which what was learned at the old rate is forgotten."""


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One window's figures of keeping up; `busy` is batch time over batch period, None if unknown.

    `queues_grow` says that records piled up between operators, where no source shows them.
    """

    end: float
    seconds: float
    sources: Mapping[str, SourceRate]
    busy: float | None
    queues_grow: bool = False

    @property
    def offered(self) -> float:
        """Records per second that the outside world sent to all sources."""
        return sum(rate.offered_per_second for rate in self.sources.values())

    @property
    def observed(self) -> float:
        """Records per second that were read from all sources."""
        return sum(rate.observed_per_second for rate in self.sources.values())


def measure_load(window: ApplicationWindow) -> LoadSample:
    """Take from a window the figures of keeping up; sources with NaN figures count as unknown."""
    sources = {
        f"{query.query_id}/{name}": rate
        for query in window.queries
        for name, rate in query.readings.items()
        if math.isfinite(rate.offered_per_second + rate.observed_per_second + rate.backlog_records)
    }
    queues_grow = isinstance(window, OperatorWindow) and any(
        find_growing_queues(query.graph, query.metrics, 1 - NOISE) for query in window.queries
    )
    return LoadSample(window.end, window.end - window.start, sources, _busy(window), queues_grow)


def mean_offered(history: Sequence[LoadSample]) -> float:
    """Return the mean offered rate over the windows."""
    return _mean(one.offered for one in history)


def mean_observed(history: Sequence[LoadSample]) -> float:
    """Return the mean observed rate over the windows."""
    return _mean(one.observed for one in history)


def is_falling_behind(history: Sequence[LoadSample], by: float = NOISE) -> bool:
    """Tell whether some source's backlog grew from window to window, or all batches overran their period.

    The second matters because a micro-batch without a limit reads all that is there: then the backlog
    between batches stays small, and it is the batches that grow.
    """
    if len(history) < 2:
        return False
    overrun = all(one.busy is not None and one.busy > 1 + by for one in history)
    return overrun or any(_backlog_grows(history, source, by) for source in history[-1].sources)


def falls_short(one: LoadSample, by: float = NOISE) -> bool:
    """Tell whether less was read than offered in one window, so that the backlog grew, or batches overran."""
    overrun = one.busy is not None and one.busy > 1 + by
    return overrun or any(
        rate.backlog_records > 0 and rate.observed_per_second < (1 - by) * rate.offered_per_second
        for rate in one.sources.values()
    )


def fell_behind(history: Sequence[LoadSample]) -> bool:
    """Tell whether records piled up in these windows; of a single one, which has no trend, the rates tell."""
    behind = is_falling_behind(history) if len(history) > 1 else any(map(falls_short, history))
    return behind or any(one.queues_grow for one in history[-1:])


def list_growing(history: Sequence[LoadSample]) -> set[str]:
    """List the sources whose backlog grows from window to window."""
    if len(history) < 2:
        return set()
    return {source for source in history[-1].sources if _backlog_grows(history, source, NOISE)}


def find_rate_ratio(history: Sequence[LoadSample]) -> float:
    """Return the largest offered over observed rate of a source over all windows; 1 where nothing was read.

    A source of which nothing at all is read is stalled, and its ratio says nothing about capacity.
    """
    ratios = (find_source_ratio(history, source) for source in (history[-1].sources if history else ()))
    return max(ratios, default=1.0)


def find_source_ratio(history: Sequence[LoadSample], source: str) -> float:
    """Return the offered over the observed rate of one source over all windows."""
    rates = [(one.sources[source], one.seconds) for one in history if source in one.sources]
    observed = sum(rate.observed_per_second * seconds for rate, seconds in rates)
    offered = sum(rate.offered_per_second * seconds for rate, seconds in rates)
    return offered / observed if observed > 0 else 1.0


def _backlog_grows(history: Sequence[LoadSample], source: str, by: float) -> bool:
    """Tell whether a backlog grows; the rates must agree, since it grows by what is offered and not read."""
    newest, before = history[-1].sources[source], history[-2].sources.get(source)
    # mostly there is no backlog, or it does not grow; all else is asked only where it does
    if before is None or newest.backlog_records <= before.backlog_records:
        return False
    if not all(source in one.sources for one in history):
        return False
    backlogs = [one.sources[source].backlog_records for one in history]
    if not all(later > earlier for earlier, later in pairwise(backlogs)):
        return False
    offered = sum(one.sources[source].offered_per_second * one.seconds for one in history[1:])
    read = sum(one.sources[source].observed_per_second * one.seconds for one in history[1:])
    return backlogs[-1] - backlogs[0] > by * offered and read < (1 - by) * offered


def _busy(window: ApplicationWindow) -> float | None:
    if not isinstance(window, SlotWindow):
        return None
    shares = [
        _mean(batch.seconds for batch in query.batches if batch.settled) / query.period_seconds
        for query in window.queries
        if query.period_seconds and any(batch.settled for batch in query.batches)
    ]
    return max(shares, default=None)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The size that the policy asked for at one time, for every unit, and its own words for it.

    `floor` is what was to be kept then: the need, or what was held where that was used well enough.
    """

    at: float
    need: Mapping[str, int]
    floor: Mapping[str, int]
    proposal: Hold | Scale


@dataclass(frozen=True, slots=True)
class Trial:
    """An action, and how things stood before it: what it is judged by later.

    `waited` counts the windows in which a further growth has waited for that judgement; `wanted` is the size
    that a limit on steps has cut.
    """

    action: Scale
    before: Mapping[str, int]
    measured_before: tuple[LoadSample, ...]
    rollback: bool = False
    waited: int = 0
    wanted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refused:
    """A size that did worse than the one before it, and the offered rate at which it did."""

    size: Mapping[str, int]
    instead_of: Mapping[str, int]
    offered: float


@dataclass(frozen=True, slots=True)
class ManagerState:
    """All that later verdicts depend on.

    `ready_from` is the time before which a window is not believed; `changed_at` the end of the last action;
    `pending_size` why the size may be about to change, which keeps state where it is; `oversized_since` when
    the policy began to ask for less than was held.
    """

    last_now: float | None = None
    changed_at: float | None = None
    ready_from: float | None = None
    under_way: Scale | None = None
    held: Mapping[str, int] = field(default_factory=dict)
    measured: tuple[LoadSample, ...] = ()
    decisions: tuple[Decision, ...] = ()
    prepared: Trial | None = None
    trial: Trial | None = None
    refused: Refused | None = None
    small_gains: int = 0
    small_gain_offered: float = 0.0
    pending_size: str | None = None
    oversized_since: float | None = None


def remember_decision(
    decisions: tuple[Decision, ...], decision: Decision, delay: float
) -> tuple[Decision, ...]:
    """Add a decision; drop those that no delay asks for any more, merge the oldest when there are too many.

    One decision older than the delay stays, because it proves that the whole delay was seen.
    """
    kept = [*decisions, decision]
    while len(kept) > FEWEST_DECISIONS and kept[1].at <= decision.at - delay:
        del kept[0]
    if len(kept) > MOST_DECISIONS:
        kept[:2] = [_merge(kept[0], kept[1])]
    return tuple(kept)


def _merge(older: Decision, newer: Decision) -> Decision:
    """Keep the older time and the larger need: merging can only make a scale-down later and smaller."""
    units = older.floor.keys() | newer.floor.keys()
    larger = {unit: max(older.floor.get(unit, 0), newer.floor.get(unit, 0)) for unit in units}
    return Decision(older.at, newer.need, larger, newer.proposal)


def forget_outdated(state: ManagerState) -> ManagerState:
    """Forget what actions brought at an offered rate that is no longer the present one."""
    if not (state.refused or state.small_gains):
        return state
    offered = mean_offered(state.measured)
    if state.refused and _differs(offered, state.refused.offered):
        state = replace(state, refused=None)
    if state.small_gains and _differs(offered, state.small_gain_offered):
        state = replace(state, small_gains=0)
    return state


def _differs(offered: float, known: float) -> bool:
    return abs(offered - known) > MATERIAL_CHANGE * known
