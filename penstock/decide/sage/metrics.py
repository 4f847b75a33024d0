"""The input of Sage's rules: the sample of a window, metrics over time in columns, and the size held."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats
from penstock.dataflow.window import ApplicationWindow, ExecutorState, ExecutorUse
from penstock.errors import BadMetrics


class Rule(IntEnum):
    """The policies of Table 1 in the paper, in the order of their priority."""

    NONE = 0
    HEAP_UP = 1
    MEMORY_UP = 2
    CPU_UP = 3
    PARALLELISM_UP = 4
    PARALLELISM_DOWN = 5
    HEAP_DOWN = 6
    MEMORY_DOWN = 7
    CPU_DOWN = 8


class Parameter(IntEnum):
    """A parameter that a rule changes and an operator can pin."""

    PARALLELISM = 0
    HEAP = 1
    OVERHEAD = 2
    MEMORY_FRACTION = 3
    CPU = 4
    DRIVER_HEAP = 5


class Symptom(IntEnum):
    """The sign that made a rule decide."""

    NONE = 0
    OUT_OF_MEMORY = 1
    HEAP_USED = 2
    GC_TIME = 3
    GC_COUNT = 4
    SPILL = 5
    DRIVER_HEAP_USED = 6
    MEMORY_KILL = 7
    OVERHEAD_USED = 8
    CPU_USED = 9
    BACKLOG_GROWS = 10
    UNUSED = 11
    FORCED = 12


@dataclass(frozen=True, slots=True)
class SizingHistory:
    """Samples of one application, oldest first; NaN is what was not measured.

    `at` is the end of a sample and `seconds` its length; GC, spill and failures are counted within it. Heap,
    memory and CPU are those of the executor that has most; memory is the likely resident size of the JVM and
    of its Python workers together, for which committed heap counts as resident. `beside_heap_bytes` is what
    is resident beyond the committed heap, which is surely not of the heap. `needed_parallelism` is what the
    DS2 calculation asks for.
    """

    at: Floats
    seconds: Floats
    heap_used_bytes: Floats
    heap_committed_bytes: Floats
    gc_seconds: Floats
    gc_count: Floats
    memory_used_bytes: Floats
    cpu_used_cores: Floats
    backlog_records: Floats
    offered_per_second: Floats
    needed_parallelism: Floats
    spilled_bytes: Floats
    driver_heap_used_bytes: Floats
    out_of_memory_count: Floats
    memory_kill_count: Floats
    beside_heap_bytes: Floats

    def __post_init__(self) -> None:
        for column in fields(self):
            if len(getattr(self, column.name)) != len(self.at):
                raise BadMetrics(f"{column.name} has another length than the times of the samples")
        if not bool(np.all(np.diff(self.at) > 0)):
            raise BadMetrics("the samples are not in the order of their times")

    def within(self, after: float, until: float) -> SizingHistory:
        """Return the samples that ended in (after, until]."""
        return self.where((self.at > after) & (self.at <= until))

    def where(self, kept: NDArray[np.bool_]) -> SizingHistory:
        """Return the samples for which it is true."""
        return SizingHistory(**{column.name: getattr(self, column.name)[kept] for column in fields(self)})


METRICS: tuple[str, ...] = tuple(
    column.name for column in fields(SizingHistory) if column.name not in ("at",)
)
"""The columns of a history beside its times, in the order in which columnar code keeps them."""


@dataclass(frozen=True, slots=True)
class HeldSize:
    """The size that one application holds; bytes and cores are those of one executor."""

    parallelism: int
    heap_bytes: float
    overhead_bytes: float
    memory_fraction: float = 0.6
    cores: int = 1
    task_cpus: int = 1
    driver_heap_bytes: float = float("nan")

    def __post_init__(self) -> None:
        if self.parallelism < 1 or self.task_cpus < 1 or self.cores < self.task_cpus:
            raise BadMetrics(f"a size that no application can have: {self}")
        if not (self.heap_bytes > 0 and self.overhead_bytes >= 0 and 0 < self.memory_fraction < 1):
            raise BadMetrics(f"a size that no application can have: {self}")

    @property
    def slots(self) -> int:
        """Tasks that one executor runs at once."""
        return self.cores // self.task_cpus


@dataclass(frozen=True, slots=True)
class TooSmall:
    """Sizes that a rule has found too small before: no decrease goes down to them again.

    A heap that was lowered once is not lowered further: what a JVM commits follows what it may have, so that
    it is always less under a smaller limit.
    """

    heap_bytes: float = 0.0
    overhead_bytes: float = 0.0
    task_cpus: int = 0
    lowered_heap_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Overrides:
    """Orders of operators: a pinned parameter stays, a vetoed rule is silent, a forced one decides."""

    pinned: frozenset[Parameter] = frozenset()
    vetoed: frozenset[Rule] = frozenset()
    forced: Rule = Rule.NONE
    by: str = ""


@dataclass(frozen=True, slots=True)
class SizingInput:
    """One application in one round.

    Samples that ended before `fresh_after` (the end of the last action) are not believed.
    `service_correlation` is how closely the backlog follows a remote service, NaN where there is none.
    """

    now: float
    history: SizingHistory
    held: HeldSize
    fresh_after: float = float("-inf")
    action_in_flight: bool = False
    service_correlation: float = float("nan")
    too_small: TooSmall = TooSmall()
    overrides: Overrides = Overrides()


@dataclass(frozen=True, slots=True)
class Sizing:
    """The decision of one rule: what it measured against which bound, and the size that follows."""

    rule: Rule
    symptom: Symptom
    measured: float
    bound: float
    after: HeldSize


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
"""The metrics that executors report of themselves."""
Sample = Mapping[str, float]
"""Metric → its value; what was not measured is missing or NaN."""


class GcClock:
    """The share of Spark's own count of GC time that falls into a window, where executors report none."""

    def __init__(self) -> None:
        self._before: float | None = None

    def seconds(self, window: ApplicationWindow) -> float:
        """Return the seconds of GC since the window before; NaN for the first, and where an executor went."""
        total = max((executor.gc_seconds for executor in window.executors), default=math.nan)
        before, self._before = self._before, total
        grown = total - before if before is not None else math.nan
        return grown if grown >= 0 else math.nan


class TouchedHeap:
    """The most that each executor has used of its heap: what was touched once stays resident when cleared."""

    def __init__(self) -> None:
        self._most: dict[str, float] = {}

    def beside(self, executors: Sequence[ExecutorState]) -> list[float]:
        """Return what is resident outside the heap of each; committed heap counts as resident.

        Pages that were never touched are not; then only the most that was ever used of it is taken off.
        """
        uses = {one.executor_id: one.use or ExecutorUse() for one in executors}
        self._most = {name: _track_touched(self._most.get(name, math.nan), use) for name, use in uses.items()}
        return [_beside(use, self._most[name]) for name, use in uses.items()]


def _track_touched(before: float, use: ExecutorUse) -> float:
    """Return the most heap that was touched; what the JVM gave back is not resident any more."""
    most = np.fmax(before, use.heap_used_bytes)
    return float(np.fmin(most, use.heap_committed_bytes)) if not math.isnan(most) else math.nan


def _beside(use: ExecutorUse, touched: float) -> float:
    resident, committed = use.resident_bytes, use.heap_committed_bytes
    beside = resident - (touched if resident < committed else committed)
    return 0.0 if beside < 0 else beside


def surely_beside(use: ExecutorUse) -> float:
    """Return what is resident beyond the committed heap, and so is surely not of the heap."""
    beside = use.resident_bytes - use.heap_committed_bytes
    return 0.0 if beside < 0 else beside


def sample_of(
    window: ApplicationWindow, gc: GcClock, touched: TouchedHeap, needed: float
) -> dict[str, float]:
    """Return the metrics that the rules look at, of the executor that has most.

    `needed` is what DS2 asks for. Memory is the largest committed heap and the most that is beside a heap, be
    they of one executor or two.
    """
    offered = [rate.offered_per_second for query in window.queries for rate in query.sources.values()]
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
    """Return the records that wait at all sources; NaN where no source is known yet."""
    waiting = [rate for query in window.queries for rate in query.waiting]
    return sum(rate.backlog_records for rate in waiting) if waiting else math.nan


def history_of(times: Sequence[float], samples: Sequence[Sample]) -> SizingHistory:
    """Return samples as columns, oldest first."""
    columns = {name: [sample.get(name, math.nan) for sample in samples] for name in METRICS}
    arrays = {name: np.array(values, dtype=np.float64) for name, values in columns.items()}
    assert {"at", *arrays} == {column.name for column in fields(SizingHistory)}
    return SizingHistory(at=np.array(times, dtype=np.float64), **arrays)


def _most(window: ApplicationWindow, value: Callable[[ExecutorUse], float]) -> float:
    uses = [executor.use for executor in window.executors]
    return _largest([math.nan if use is None else value(use) for use in uses])


def _largest(told: Sequence[float]) -> float:
    """Return the largest among the executors; NaN where more than half of them have not said it.

    Datagrams get lost, and a new executor has not reported yet: one of many must not silence all rules.
    """
    known = [one for one in told if not math.isnan(one)]
    return max(known) if known and 2 * len(known) >= len(told) else math.nan
