"""The input of policies: an application over a window, with its queries, sources and executors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import BatchExecution, MetricWindow, RunningBatch
from penstock.dataflow.readiness import NotReady

EXECUTORS = "executors"
"""The one unit that is scaled in an application on slots."""


@dataclass(frozen=True, slots=True)
class SourceRate:
    """The rates at which records are offered to one operator and read by it, and its backlog.

    `unknown_because` says why the offered rate is NaN, where that is known. A table that is joined has
    `rows_per_batch`, which every batch reads, whatever its length: nobody offers them.
    """

    offered_per_second: float
    observed_per_second: float
    backlog_records: float = 0.0
    unknown_because: str = field(default="", kw_only=True)
    rows_per_batch: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True, slots=True)
class TopicRate(SourceRate):
    """A topic that an operator reads itself; `overdue_records` are those of its backlog to catch up with."""

    overdue_records: float = 0.0


@dataclass(frozen=True, slots=True)
class OperatorBatches:
    """The batches in which an operator with instances of its own reads its topic, over a window; seconds.

    `trigger_seconds` is the least time from the start of one batch to that of the next, `seconds` the mean
    batch, and `fixed_seconds` the part of it that more instances do not shorten. `response_seconds` is the
    mean time from a record's arrival in the topic to the end of its batch, as measured; None if unknown.
    """

    trigger_seconds: float
    seconds: float
    fixed_seconds: float
    response_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ExecutorUse:
    """The resources that one executor reports to have used; NaN where it reports nothing.

    Resident memory and CPU count the JVM and its Python workers together. Collections and spill are those of
    the window.
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
    """The facts beside the queries that memory and cores are sized by: settings, driver, losses."""

    settings: Mapping[str, str]
    driver_heap_used_bytes: float = math.nan
    out_of_memory_count: int = 0
    memory_kill_count: int = 0

    @property
    def failed_for_memory(self) -> bool:
        """Whether an executor was lost for want of heap, or of memory beside the heap."""
        return self.out_of_memory_count + self.memory_kill_count > 0


@dataclass(frozen=True, slots=True)
class ExecutorState:
    """One executor, as Spark reports it; bytes and seconds."""

    executor_id: str
    host: str
    cores: int
    active_tasks: int = 0
    memory_bytes: int = 0
    """Available to Spark for storage."""
    heap_used_bytes: int = 0
    """The peak since it started."""
    gc_seconds: float = 0.0
    cached_bytes: int = 0
    """Blocks in memory and on disk."""
    state_bins: int = 0
    """State partitions that its tasks worked on last."""
    use: ExecutorUse | None = None


@dataclass(frozen=True, slots=True)
class MemoryLoss:
    """An executor that was lost for want of memory: of heap, or of what its host or container gives."""

    executor: str
    host: str
    at: float
    out_of_heap: bool


@dataclass(frozen=True, slots=True)
class HotTask:
    """A task far longer than the others of the operator that has most of the task time.

    `share` is the part of the critical path that runs on its slot.
    """

    operator: str
    executor: str
    partition: int
    seconds: float
    times_median: float
    share: float


@dataclass(frozen=True, slots=True)
class SlowExecutor:
    """An executor whose tasks take far longer than those of the same operator elsewhere, for no more records.

    `share` is the part of the critical path that runs on its slots.
    """

    executor: str
    operator: str
    times_others: float
    share: float


@dataclass(frozen=True, slots=True)
class LaggingExecutor:
    """An executor whose tasks of a batch took many times as long as the same work elsewhere."""

    executor: str
    times_others: float


@dataclass(frozen=True, slots=True)
class CriticalWindow:
    """Critical participation over one batch of a query, from its trigger to its end.

    The shares of `activity` sum to 1, and so do those of `causes`. Those of `operator` are not divided by its
    instances. `task_share` is the part of the path inside tasks; the rest is the driver's. `replayed_seconds`
    is the batch replayed on the slots it had, `least_seconds` on as many as it could use.
    """

    batch_id: int
    start: float
    end: float
    slots: int
    input_records: float
    activity: Mapping[str, float]
    worker: Mapping[str, float]
    operator: Mapping[str, float]
    task_share: float
    replayed_seconds: float
    least_seconds: float
    hot_task: HotTask | None
    answer: str
    slow_executor: SlowExecutor | None = None
    causes: Mapping[str, float] = field(default_factory=dict)

    @property
    def gain_of_slots(self) -> float:
        """The share of the batch's time that slots without limit could save."""
        return max(0.0, 1 - self.least_seconds / self.replayed_seconds) if self.replayed_seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class _Query:
    """The part of a query's window that both execution models share.

    `sources` are the operators that the outside world feeds, each with what it is sent. `latency_seconds` is
    the end-to-end latency of the mean record (waiting at the source plus processing), None if unknown.
    """

    query_id: str
    name: str
    graph: LogicalGraph
    sources: Mapping[str, SourceRate]
    latency_seconds: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class SlotQuery(_Query):
    """A query whose operators share the slots, stage after stage, as on Spark.

    `batches` are those that finished in the window, oldest first. `period_seconds` is the trigger interval,
    None when batches follow each other at once. `timeline_seconds` says where the newest batch spent its
    time, phase by phase, until the next trigger. `critical` has the batches last analysed, oldest first.
    `latency_by` says what the latencies rest on. `running` is the batch that has not ended, where its tasks
    were looked at. `idle_seconds` is for how long the sources have been seen to offer nothing while nothing
    waited; 0 where that is not known. A `single_run` ends by itself when its backlog is read (availableNow,
    once). `jobs_per_batch` counts the Spark jobs of the newest batch. `outside_seconds` is for how long the
    batch that is under way has had no task, `lagging` are the executors that the newest batch waited for, and
    `left_out` says why the newest batch is not among `batches`.
    """

    batches: tuple[BatchExecution, ...] = ()
    period_seconds: float | None = None
    timeline_seconds: Mapping[str, float] = field(default_factory=dict)
    critical: tuple[CriticalWindow, ...] = ()
    oldest_latency_seconds: float | None = None
    latency_by: str = ""
    running: RunningBatch | None = None
    idle_seconds: float = 0.0
    single_run: bool = False
    jobs_per_batch: int = 1
    outside_seconds: float = 0.0
    lagging: tuple[LaggingExecutor, ...] = ()
    left_out: str = ""

    @property
    def readings(self) -> Mapping[str, SourceRate]:
        """Every input that is read, by the operator that reads it."""
        return self.sources

    @property
    def waiting(self) -> tuple[SourceRate, ...]:
        """Every input in which records may wait."""
        return tuple(self.sources.values())


@dataclass(frozen=True, slots=True)
class OperatorQuery(_Query):
    """A query whose operators have instances of their own, as in Flink, Heron or Pulsar Functions.

    `topics` has the operators that read a topic of their own. What waits for such an operator waits there, so
    the backlogs of `topics` stand in place of those of `sources`. `batches` has those that read theirs in
    batches.
    """

    metrics: MetricWindow
    topics: Mapping[str, TopicRate] = field(default_factory=dict)
    batches: Mapping[str, OperatorBatches] = field(default_factory=dict)

    @property
    def readings(self) -> Mapping[str, SourceRate]:
        """Every input that is read, by the operator that reads it."""
        return {**self.sources, **self.topics} if self.topics else self.sources

    @property
    def waiting(self) -> tuple[SourceRate, ...]:
        """Every input in which records may wait, each record counted once."""
        return tuple((self.topics or self.sources).values())


QueryWindow = SlotQuery | OperatorQuery
"""One streaming query over a window, by its execution model."""


@dataclass(frozen=True, slots=True)
class _Application:
    """The part of a window over [start, end) that both execution models share.

    `parallelism` is what is held now: operator → instances, or {EXECUTORS: n} on slots.
    """

    application: str
    start: float
    end: float
    parallelism: Mapping[str, int]
    executors: tuple[ExecutorState, ...] = field(default=(), kw_only=True)
    slots_per_executor: int = field(default=1, kw_only=True)
    warnings: tuple[str, ...] = field(default=(), kw_only=True)
    sizing: SizingFacts | None = field(default=None, kw_only=True)
    memory_losses: tuple[MemoryLoss, ...] = field(default=(), kw_only=True)
    """The executors that were lost for want of memory lately."""

    @property
    def slots(self) -> int:
        """Cores of all executors together."""
        return sum(executor.cores for executor in self.executors)


@dataclass(frozen=True, slots=True)
class SlotWindow(_Application):
    """An application whose queries run on slots.

    `reserved_slots` are those that its real-time queries, `reserved_for`, need: such a query runs the tasks
    of all its stages at once, and dies when slots are short.
    """

    queries: tuple[SlotQuery, ...]
    reserved_slots: int = 0
    reserved_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorWindow(_Application):
    """An application whose operators have instances of their own."""

    queries: tuple[OperatorQuery, ...]


ApplicationWindow = SlotWindow | OperatorWindow
"""One application over a window: the input of every policy."""


@dataclass(frozen=True, slots=True)
class NoBatchYet(NotReady):
    """No query has finished a batch.

    `window` has the executors, which may be short of memory, and those queries whose running batch is known.
    `idle_seconds` is for how long all queries have been seen to be offered nothing; 0 where that is unknown.
    """

    window: ApplicationWindow = field(kw_only=True)
    idle_seconds: float = field(default=0.0, kw_only=True)
