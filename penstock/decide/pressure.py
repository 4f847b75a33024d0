"""Whether an application keeps up with its sources, judged by a few windows in a row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.dataflow.window import ApplicationWindow, SourceRate

NOISE = 0.05
"""Share of the offered records by which a backlog may grow before that is believed.

A backlog is sampled at some moment between two batches, so small growth is mostly the moment.
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one window says about keeping up; `busy` is batch time over batch period, None if unknown."""

    end: float
    seconds: float
    sources: Mapping[str, SourceRate]
    busy: float | None

    @property
    def offered(self) -> float:
        """Records per second that the outside world sent to all sources."""
        return sum(rate.offered_per_second for rate in self.sources.values())

    @property
    def observed(self) -> float:
        """Records per second that were read from all sources."""
        return sum(rate.observed_per_second for rate in self.sources.values())


def measure(window: ApplicationWindow) -> Measured:
    """Take from a window what keeping up is judged by; sources with NaN figures count as unknown."""
    sources = {
        f"{query.query_id}/{name}": rate
        for query in window.queries
        for name, rate in query.sources.items()
        if math.isfinite(rate.offered_per_second + rate.observed_per_second + rate.backlog_records)
    }
    return Measured(window.end, window.end - window.start, sources, _busy(window))


def offered_rate(history: Sequence[Measured]) -> float:
    """Mean offered rate over the windows."""
    return _mean(one.offered for one in history)


def observed_rate(history: Sequence[Measured]) -> float:
    """Mean observed rate over the windows."""
    return _mean(one.observed for one in history)


def falling_behind(history: Sequence[Measured], by: float = NOISE) -> bool:
    """Whether some source's backlog grew from window to window, or all batches overran their period.

    The second matters because a micro-batch without a limit reads all that is there: then the backlog
    between batches stays small, and it is the batches that grow.
    """
    if len(history) < 2:
        return False
    overrun = all(one.busy is not None and one.busy > 1 + by for one in history)
    return overrun or any(_backlog_grows(history, source, by) for source in history[-1].sources)


def rate_ratio(history: Sequence[Measured]) -> float:
    """The largest offered over observed rate of a source over all windows; 1 where nothing was read.

    A source of which nothing at all is read is stalled, and its ratio says nothing about capacity.
    """
    ratios = (_source_ratio(history, source) for source in (history[-1].sources if history else ()))
    return max(ratios, default=1.0)


def _source_ratio(history: Sequence[Measured], source: str) -> float:
    rates = [(one.sources[source], one.seconds) for one in history if source in one.sources]
    observed = sum(rate.observed_per_second * seconds for rate, seconds in rates)
    offered = sum(rate.offered_per_second * seconds for rate, seconds in rates)
    return offered / observed if observed > 0 else 1.0


def _backlog_grows(history: Sequence[Measured], source: str, by: float) -> bool:
    """Rates and backlog must agree: offered minus read is what a backlog grows by."""
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
    shares = [
        _mean(batch.seconds for batch in query.batches if batch.settled) / query.period_seconds
        for query in window.queries
        if query.period_seconds and any(batch.settled for batch in query.batches)
    ]
    return max(shares, default=None)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0
