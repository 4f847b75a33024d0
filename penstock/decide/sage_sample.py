"""One sample of an application for Sage's rules, out of one window."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

import numpy as np

from penstock.dataflow.window import ApplicationWindow, ExecutorState, ExecutorUse
from penstock.decide.sage_metrics import METRICS, SizingHistory

OF_EXECUTORS = (
    "heap_used_bytes",
    "heap_committed_bytes",
    "gc_seconds",
    "gc_count",
    "memory_used_bytes",
    "cpu_used_cores",
    "spilled_bytes",
    "beside_heap_bytes",
)
"""What executors report of themselves."""
Sample = Mapping[str, float]
"""Metric → its value; what was not measured is missing or NaN."""


class GcClock:
    """The share of Spark's own count of GC time that falls into a window, where executors report none."""

    def __init__(self) -> None:
        self._before: float | None = None

    def seconds(self, window: ApplicationWindow) -> float:
        """Seconds of GC since the window before; NaN for the first, and where an executor went."""
        total = max((executor.gc_seconds for executor in window.executors), default=math.nan)
        before, self._before = self._before, total
        grown = total - before if before is not None else math.nan
        return grown if grown >= 0 else math.nan


class TouchedHeap:
    """The most that each executor has used of its heap: what was touched once stays resident when cleared."""

    def __init__(self) -> None:
        self._most: dict[str, float] = {}

    def beside(self, executors: Sequence[ExecutorState]) -> list[float]:
        """What is resident outside the heap of each, for which committed heap counts as resident.

        Pages that were never touched are not; then only the most that was ever used of it is taken off.
        """
        uses = {one.executor_id: one.use or ExecutorUse() for one in executors}
        self._most = {name: _touched(self._most.get(name, math.nan), use) for name, use in uses.items()}
        return [_beside(use, self._most[name]) for name, use in uses.items()]


def _touched(before: float, use: ExecutorUse) -> float:
    """What the JVM gave back is not resident when it takes it anew; a missing report changes nothing."""
    most = np.fmax(before, use.heap_used_bytes)
    return float(np.fmin(most, use.heap_committed_bytes)) if not math.isnan(most) else math.nan


def _beside(use: ExecutorUse, touched: float) -> float:
    resident, committed = use.resident_bytes, use.heap_committed_bytes
    beside = resident - (touched if resident < committed else committed)
    return 0.0 if beside < 0 else beside


def surely_beside(use: ExecutorUse) -> float:
    """What is resident even if all that is committed was touched, and so is not of the heap."""
    beside = use.resident_bytes - use.heap_committed_bytes
    return 0.0 if beside < 0 else beside


def sample_of(
    window: ApplicationWindow, gc: GcClock, touched: TouchedHeap, needed: float
) -> dict[str, float]:
    """What the rules look at, of the executor that has most; `needed` is what DS2 asks for.

    Memory is the largest committed heap and the most that is beside a heap, be they of one executor or two.
    """
    offered = [rate.offered_per_second for query in window.queries for rate in query.outside]
    spark_gc = gc.seconds(window)
    own_gc = _most(window, lambda use: use.gc_seconds)
    committed = _most(window, lambda use: use.heap_committed_bytes)
    facts = window.sizing
    return {
        "seconds": window.end - window.start,
        "heap_used_bytes": _most(window, lambda use: use.heap_used_bytes),
        "heap_committed_bytes": committed,
        "gc_seconds": spark_gc if math.isnan(own_gc) else own_gc,
        "gc_count": _most(window, lambda use: use.gc_count),
        "memory_used_bytes": committed + _largest(touched.beside(window.executors)),
        "cpu_used_cores": _most(window, lambda use: use.cpu_cores),
        "backlog_records": backlog_of(window),
        "offered_per_second": sum(offered) if offered else math.nan,
        "needed_parallelism": needed,
        "spilled_bytes": _most(window, lambda use: use.spilled_bytes),
        "driver_heap_used_bytes": facts.driver_heap_used_bytes if facts else math.nan,
        "out_of_memory_count": float(facts.out_of_memory_count) if facts else math.nan,
        "memory_kill_count": float(facts.memory_kill_count) if facts else math.nan,
        "beside_heap_bytes": _most(window, surely_beside),
    }


def backlog_of(window: ApplicationWindow) -> float:
    """Records that wait at all sources; NaN where no source is known yet."""
    waiting = [rate for query in window.queries for rate in query.waiting]
    return sum(rate.backlog_records for rate in waiting) if waiting else math.nan


def history_of(times: Sequence[float], samples: Sequence[Sample]) -> SizingHistory:
    """Samples as columns, oldest first."""
    columns = {name: [sample.get(name, math.nan) for sample in samples] for name in METRICS}
    arrays = {name: np.array(values, dtype=np.float64) for name, values in columns.items()}
    assert {"at", *arrays} == {column.name for column in fields(SizingHistory)}
    return SizingHistory(at=np.array(times, dtype=np.float64), **arrays)


def _most(window: ApplicationWindow, value: Callable[[ExecutorUse], float]) -> float:
    uses = [executor.use for executor in window.executors]
    return _largest([math.nan if use is None else value(use) for use in uses])


def _largest(told: Sequence[float]) -> float:
    """The largest among the executors; NaN where more than half of them have not said it.

    Datagrams get lost, and a new executor has not reported yet: one of many must not silence all rules.
    """
    known = [one for one in told if not math.isnan(one)]
    return max(known) if known and 2 * len(known) >= len(told) else math.nan
