"""What a policy sees: one window of an application, its queries, sources and executors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock.dataflow.batches import BatchExecution
from penstock.dataflow.critical import CriticalWindow
from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import MetricWindow

EXECUTORS = "executors"
"""The one scalable unit of an application whose operators share slots."""


class Execution(Enum):
    """How operators get their instances."""

    PER_OPERATOR = "per-operator"
    """Each operator has its own parallelism, as in Flink, Heron or Pulsar Functions."""
    SHARED_SLOTS = "shared-slots"
    """All operators share the slots, as in Timely, and on Spark stage after stage."""


@dataclass(frozen=True, slots=True)
class SourceRate:
    """What the outside world sends to one source operator, and what was read of it."""

    offered_per_second: float
    observed_per_second: float
    backlog_records: float = 0.0


@dataclass(frozen=True, slots=True)
class ExecutorUse:
    """What one executor used in the window, as it reports by itself; NaN is what it did not report.

    Resident memory and CPU are those of the JVM and its Python workers together; collections and spill are
    the window's.
    """

    heap_used_bytes: float = math.nan
    heap_committed_bytes: float = math.nan
    resident_bytes: float = math.nan
    cpu_cores: float = math.nan
    gc_seconds: float = math.nan
    gc_count: float = math.nan
    spilled_bytes: float = math.nan


@dataclass(frozen=True, slots=True)
class SizingFacts:
    """What sizing memory and cores needs beside the queries: Spark's settings in effect, driver, losses."""

    settings: Mapping[str, str]
    driver_heap_used_bytes: float = math.nan
    out_of_memory_count: int = 0
    memory_kill_count: int = 0

    @property
    def failed_for_memory(self) -> bool:
        """Whether an executor was lost for want of heap, or of memory beside it."""
        return self.out_of_memory_count + self.memory_kill_count > 0


@dataclass(frozen=True, slots=True)
class ExecutorState:
    """One executor, as Spark reports it; bytes and seconds."""

    executor_id: str
    host: str
    cores: int
    active_tasks: int = 0
    memory_bytes: int = 0
    heap_used_bytes: int = 0
    gc_seconds: float = 0.0
    cached_bytes: int = 0
    state_bins: int = 0
    use: ExecutorUse | None = None


@dataclass(frozen=True, slots=True)
class QueryWindow:
    """One streaming query over the window.

    `batches` are the batches that finished in the window, oldest first, for queries that share slots;
    `period_seconds` is the trigger interval, None when batches follow each other at once.
    `latency_seconds` is the end-to-end latency seen (waiting in the source plus processing), when known: of
    the mean record, and of the oldest one `oldest_latency_seconds`; `latency_by` says what it rests on.
    `timeline_seconds` says where the newest batch spent its time, phase by phase, until the next trigger.
    `overdue_records` is told where operators read topics of their own: operator → what waits there and is to
    be caught up with, which then stands in place of the sources' backlog; `sources` has these operators, too.
    `critical` tells what was on the critical path of the batches last analysed, oldest first.
    """

    query_id: str
    name: str
    graph: LogicalGraph
    metrics: MetricWindow
    sources: Mapping[str, SourceRate]
    batches: tuple[BatchExecution, ...] = ()
    period_seconds: float | None = None
    latency_seconds: float | None = None
    timeline_seconds: Mapping[str, float] = field(default_factory=dict)
    critical: tuple[CriticalWindow, ...] = ()
    oldest_latency_seconds: float | None = None
    latency_by: str = ""
    overdue_records: Mapping[str, float] = field(default_factory=dict)

    @property
    def outside(self) -> tuple[SourceRate, ...]:
        """What the outside world sends: not what operators read from each other's topics."""
        if not self.overdue_records:
            return tuple(self.sources.values())
        return tuple(rate for name, rate in self.sources.items() if name not in self.overdue_records)

    @property
    def waiting(self) -> tuple[SourceRate, ...]:
        """Every input of which records may wait, once: those of operators where these have their own."""
        if not self.overdue_records:
            return tuple(self.sources.values())
        return tuple(rate for name, rate in self.sources.items() if name in self.overdue_records)


@dataclass(frozen=True, slots=True)
class ApplicationWindow:
    """One application over [start, end): the input of every policy.

    `parallelism` is what is held now: operator → instances, or {EXECUTORS: n} with shared slots.
    """

    application: str
    start: float
    end: float
    execution: Execution
    parallelism: Mapping[str, int]
    queries: tuple[QueryWindow, ...]
    executors: tuple[ExecutorState, ...] = ()
    slots_per_executor: int = 1
    warnings: tuple[str, ...] = field(default=())
    sizing: SizingFacts | None = None

    @property
    def slots(self) -> int:
        """Slots held now, with shared slots."""
        return sum(executor.cores for executor in self.executors)
