"""Faults in virtual time: a clock that is wrong, windows that are torn or lies, a controller that hangs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from penstock.dataflow.metrics import MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import (
    ApplicationWindow,
    OperatorQuery,
    OperatorWindow,
    SlotQuery,
    SlotWindow,
    SourceRate,
)
from penstock_lab.experiments.faults.matrix import CLOCK_FAULTS, HUNG, INPUT_FAULTS

Observe = Callable[[float], ApplicationWindow | NotReady]
HOUR = 3600.0
DRIFT = 0.1
"""Seconds that a drifting clock gains in a second; it is set right when the fault ends."""
LATE_WINDOWS = 4
HUGE = 1e300


class Disturbance:
    """A fault that is there from `strike` to `mend`; one of a journal or of Spark changes nothing here."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.is_on = False
        self._struck_at: float | None = None
        self._kept: deque[ApplicationWindow] = deque(maxlen=LATE_WINDOWS)
        self._waiting: list[ApplicationWindow] = []
        self._last_wall: float | None = None
        self._count = 0

    def strike(self, now: float) -> None:
        """Let the fault begin."""
        self.is_on, self._struck_at = True, now

    def mend(self, now: float) -> None:
        """Let it end: a clock is set right, a controller goes on."""
        self.is_on = False

    @property
    def hangs(self) -> bool:
        """Whether the controller does nothing now."""
        return self.is_on and self.fault == HUNG

    def wall(self, now: float) -> float:
        """Return what the wall clock shows."""
        if not self.is_on or self.fault not in CLOCK_FAULTS:
            return now
        ahead, back, _ = CLOCK_FAULTS
        wrong = DRIFT * (now - (self._struck_at or 0.0))
        return now + {ahead: HOUR, back: -HOUR}.get(self.fault, wrong)

    def observe(self, wall: float, ask: Observe) -> ApplicationWindow | NotReady:
        """Return what the fault leaves of a window; times are those of the wall clock."""
        seen = ask(wall)
        before, self._last_wall = self._last_wall, wall
        if isinstance(seen, NotReady):
            return seen
        if before is not None and before >= wall:
            return NotReady("the clock went back", "a window after it")
        seen = replace(seen, start=wall - (seen.end - seen.start) if before is None else before, end=wall)
        if not self.is_on or self.fault not in INPUT_FAULTS:
            self._kept.append(seen)
            return self._let_through(seen)
        return self._disturb(seen)

    def _let_through(self, seen: ApplicationWindow) -> ApplicationWindow:
        """Windows that were held up come at last, the newest of them first, each instead of another."""
        return self._waiting.pop() if self._waiting else seen

    def _disturb(self, seen: ApplicationWindow) -> ApplicationWindow | NotReady:
        self._count += 1
        torn, doubled, late, reordered, _ = INPUT_FAULTS
        if self.fault == torn:
            return tear_window(seen)
        if self.fault == doubled:
            return self._kept[-1] if self._kept and self._count % 2 else self._keep(seen)
        if self.fault == late:
            self._waiting.insert(0, seen)
            return NotReady("no report has come", "the next report")
        if self.fault == reordered:
            self._waiting.append(seen)
            return (
                self._waiting.pop(0) if self._count % 2 == 0 else NotReady("no report has come", "the next")
            )
        return forge_window(seen, self._count)

    def _keep(self, seen: ApplicationWindow) -> ApplicationWindow:
        self._kept.append(seen)
        return seen


def tear_window(seen: ApplicationWindow) -> ApplicationWindow:
    """Return a window of which half is missing: no batches, and no rates."""
    if isinstance(seen, SlotWindow):
        return replace(seen, queries=tuple(_tear_slot_query(query) for query in seen.queries))
    return replace(seen, queries=tuple(_tear_operator_query(query) for query in seen.queries))


def _tear_slot_query(query: SlotQuery) -> SlotQuery:
    unknown = {name: SourceRate(math.nan, math.nan, 0.0) for name in query.sources}
    return replace(query, batches=(), sources=unknown, latency_seconds=None)


def _tear_operator_query(query: OperatorQuery) -> OperatorQuery:
    unknown = {name: SourceRate(math.nan, math.nan, 0.0) for name in query.sources}
    metrics = _change_metrics(query.metrics, lambda values: np.full_like(values, math.nan))
    return replace(query, sources=unknown, metrics=metrics, latency_seconds=None)


LIES = (math.nan, -1.0, HUGE, math.inf, 0.0)


def forge_window(seen: ApplicationWindow, number: int) -> ApplicationWindow:
    """Return a window whose rates and backlogs nobody can have."""
    lie = LIES[number % len(LIES)]

    def forge(rate: SourceRate) -> SourceRate:
        return replace(rate, offered_per_second=lie, backlog_records=lie)

    if isinstance(seen, OperatorWindow):
        return replace(seen, queries=tuple(_forge_operators(query, forge, lie) for query in seen.queries))
    queries = tuple(
        replace(query, sources={name: forge(rate) for name, rate in query.sources.items()})
        for query in seen.queries
    )
    return replace(seen, queries=queries)


def _forge_operators(
    query: OperatorQuery, forge: Callable[[SourceRate], SourceRate], lie: float
) -> OperatorQuery:
    sources = {name: forge(rate) for name, rate in query.sources.items()}
    return replace(query, sources=sources, metrics=_change_metrics(query.metrics, lambda all_: all_ * lie))


def _change_metrics(metrics: MetricWindow, change: Callable[[np.ndarray], np.ndarray]) -> MetricWindow:
    return replace(metrics, records_in=change(metrics.records_in), records_out=change(metrics.records_out))
