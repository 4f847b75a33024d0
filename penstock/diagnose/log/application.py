"""The contents of one application's event log: tasks as columns, the rest as small records.

Times of day are milliseconds since the epoch, -1 where the log does not have them; lengths are milliseconds.
Lines of the log order what happened within one millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from penstock.diagnose.log.failures import TaskFailure

TASK_COLUMNS = (
    "task", "stage", "attempt", "partition", "executor", "launch", "finish", "getting_result",
    "deserialise", "run", "cpu", "python", "gc", "fetch_wait", "shuffle_write", "state_load", "state_commit",
    "result_serialise", "remote_bytes", "shuffle_written_bytes", "records_in", "scanned_records", "bytes_in",
    "memory_spilled", "disk_spilled", "peak_memory", "speculative", "outcome", "started", "ended",
)  # fmt: skip
"""One value for each task; `started` and `ended` are lines of the log."""
SUCCEEDED, FAILED, KILLED, RUNNING = range(4)
LIVE_OUTCOMES = {"SUCCESS": SUCCEEDED, "FAILED": FAILED, "KILLED": KILLED, "RUNNING": RUNNING}
"""The outcome of a task by its status in the status store."""

Column = npt.NDArray[np.int64]
StageKey = tuple[int, int]
Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks of an application in the order they started; the column `executor` indexes `executors`."""

    columns: Mapping[str, Column]
    executors: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns["stage"])

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]


@dataclass(slots=True)
class Stage:
    """An attempt of a stage; a later job that skips the stage names the same `rdd`."""

    stage: int
    attempt: int
    name: str = ""
    chain: str = ""
    tasks: int = 0
    parents: tuple[int, ...] = ()
    submitted: int = -1
    completed: int = -1
    submitted_at_line: int = -1
    completed_at_line: int = -1
    rdd: int = -1
    failure: str = ""


@dataclass(slots=True)
class SparkJob:
    """A job and the streaming query that it ran for, if any."""

    job: int
    started: int
    line: int
    stages: tuple[int, ...] = ()
    query: str = ""
    ended: int = -1
    ended_at_line: int = -1
    execution: int = -1
    failure: str = ""


@dataclass(slots=True)
class Executor:
    """An executor; its cores are 0 where the log does not have them."""

    name: str
    cores: int = 0
    added: int = -1
    removed: int = -1
    line: int = -1
    host: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StateOperator:
    """A stateful operator in one micro-batch; times are milliseconds, summed over its tasks."""

    name: str
    rows: float
    updated: float
    removed: float
    late: float
    memory_bytes: float
    update_ms: float
    removal_ms: float
    commit_ms: float
    measures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch from its progress event; phases are milliseconds, what it does not tell is 0 or -1."""

    run: str
    start: int
    phases: Mapping[str, float]
    line: int
    query: str = ""
    number: int = -1
    rows_in: float = 0.0
    offered_per_second: float = 0.0
    processed_per_second: float = 0.0
    rows_out: float = 0.0
    watermark: int = -1
    states: tuple[StateOperator, ...] = ()

    @property
    def milliseconds(self) -> float:
        """The time from the trigger to the end of the batch."""
        return self.phases.get("triggerExecution", 0.0)


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of a SQL plan, so deep below its root."""

    depth: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Eviction:
    """Blocks of a cached RDD that left memory, the bytes they held there, and how many went to disk."""

    name: str = ""
    blocks: int = 0
    bytes: float = 0.0
    to_disk: int = 0


@dataclass(frozen=True, slots=True)
class FileScan:
    """The files that a table's scans read, as the driver listed them, and their bytes."""

    files: float = 0.0
    file_bytes: float = 0.0


@dataclass(slots=True)
class SqlExecution:
    """A SQL execution on the driver; `scopes` has the words for the generated scopes of its plan."""

    started: int
    line: int
    ended: int = -1
    ended_at_line: int = -1
    execution: int = -1
    scopes: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    nodes: tuple[PlanNode, ...] = ()
    scans: Mapping[str, FileScan] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApplicationLog:
    """Everything that the diagnosis needs of one application's event log."""

    application: str
    name: str
    spark_version: str
    start: int
    end: int
    is_complete: bool
    tasks: Tasks
    stages: Mapping[StageKey, Stage]
    jobs: Mapping[int, SparkJob]
    executors: Mapping[str, Executor]
    executions: tuple[SqlExecution, ...]
    batches: tuple[Batch, ...]
    query_names: Mapping[str, str]
    lines: int
    warnings: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[TaskFailure, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    evictions: Mapping[int, Eviction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskMetric:
    """A metric of a task: its column, and its section and name in the event log and in the status store."""

    column: str
    logged: tuple[str, str]
    live: tuple[str, str]
    unit: int = 1


_LOGGED_IN, _LOGGED_OUT = "Shuffle Read Metrics", "Shuffle Write Metrics"
_LIVE_IN, _LIVE_OUT = "shuffleReadMetrics", "shuffleWriteMetrics"
# Spark counts some times in nanoseconds; columns are milliseconds.
_NANOSECONDS = 1_000_000
_MOST_COUNTED = 10**14
TASK_METRICS = (
    TaskMetric("deserialise", ("", "Executor Deserialize Time"), ("", "executorDeserializeTime")),
    TaskMetric("run", ("", "Executor Run Time"), ("", "executorRunTime")),
    TaskMetric("cpu", ("", "Executor CPU Time"), ("", "executorCpuTime"), _NANOSECONDS),
    TaskMetric("gc", ("", "JVM GC Time"), ("", "jvmGcTime")),
    TaskMetric("result_serialise", ("", "Result Serialization Time"), ("", "resultSerializationTime")),
    TaskMetric("fetch_wait", (_LOGGED_IN, "Fetch Wait Time"), (_LIVE_IN, "fetchWaitTime")),
    TaskMetric("remote_bytes", (_LOGGED_IN, "Remote Bytes Read"), (_LIVE_IN, "remoteBytesRead")),

    TaskMetric("shuffle_write", (_LOGGED_OUT, "Shuffle Write Time"), (_LIVE_OUT, "writeTime"), _NANOSECONDS),
    TaskMetric("shuffle_written_bytes", (_LOGGED_OUT, "Shuffle Bytes Written"), (_LIVE_OUT, "bytesWritten")),
    TaskMetric("records_in", (_LOGGED_IN, "Total Records Read"), (_LIVE_IN, "recordsRead")),
    TaskMetric("records_in", ("Input Metrics", "Records Read"), ("inputMetrics", "recordsRead")),
    TaskMetric("scanned_records", ("Input Metrics", "Records Read"), ("inputMetrics", "recordsRead")),
    TaskMetric("bytes_in", ("Input Metrics", "Bytes Read"), ("inputMetrics", "bytesRead")),
    TaskMetric("bytes_in", (_LOGGED_IN, "Remote Bytes Read"), (_LIVE_IN, "remoteBytesRead")),
    TaskMetric("bytes_in", (_LOGGED_IN, "Local Bytes Read"), (_LIVE_IN, "localBytesRead")),
    TaskMetric("memory_spilled", ("", "Memory Bytes Spilled"), ("", "memoryBytesSpilled")),
    TaskMetric("disk_spilled", ("", "Disk Bytes Spilled"), ("", "diskBytesSpilled")),
    TaskMetric("peak_memory", ("", "Peak Execution Memory"), ("", "peakExecutionMemory")),
)  # fmt: skip
_LOGGED = tuple((one.column, *one.logged, one.unit) for one in TASK_METRICS)
_LIVE = tuple((one.column, *one.live, one.unit) for one in TASK_METRICS)
_COLUMNS = tuple(dict.fromkeys(one.column for one in TASK_METRICS))


def read_logged_metrics(metrics: Fields) -> dict[str, int]:
    """Return the task columns of an event log's metrics; missing metrics count as 0."""
    return _sum_metrics(metrics, _LOGGED)


def read_live_metrics(metrics: Fields) -> dict[str, int]:
    """Return the task columns of the status store's metrics; missing metrics count as 0."""
    return _sum_metrics(metrics, _LIVE)


def _sum_metrics(metrics: Fields, names: tuple[tuple[str, str, str, int], ...]) -> dict[str, int]:
    found = dict.fromkeys(_COLUMNS, 0)
    sections: dict[str, Fields] = {"": metrics}
    for column, section, name, unit in names:
        if section not in sections:
            sections[section] = metrics.get(section) or {}
        found[column] += _read_count(int(sections[section].get(name, 0)) // unit)
    return found


def _read_count(count: int) -> int:
    """Return a length or a count, at least 0; reject one that sums of microseconds could not hold."""
    if count > _MOST_COUNTED:
        raise ValueError(f"{count} is no length or count")
    return max(0, count)
