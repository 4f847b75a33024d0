"""What an event log says of one application, as plain values: tasks in columns, the rest in small tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

# One value per task. Times of day are milliseconds since the epoch, -1 where the log does not know them;
# lengths are milliseconds. `started` and `ended` are places in the log: the order within a millisecond.
TASK_COLUMNS = (
    "task",
    "stage",
    "attempt",
    "partition",
    "executor",
    "launch",
    "finish",
    "getting_result",
    "deserialise",
    "run",
    "cpu",
    "python",
    "gc",
    "fetch_wait",
    "shuffle_write",
    "state_load",
    "state_commit",
    "result_serialise",
    "remote_bytes",
    "shuffle_read_bytes",
    "shuffle_written_bytes",
    "records_in",
    "outcome",
    "speculative",
    "started",
    "ended",
)
SUCCEEDED, FAILED, KILLED, RUNNING = range(4)

Column = npt.NDArray[np.int64]
StageKey = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks of an application, in the order they started; `executor` indexes the executor names."""

    columns: Mapping[str, Column]
    executors: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns["stage"])

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]


@dataclass(slots=True)
class Stage:
    """One attempt of one stage; `rdd` is what it computes, the same where a later job skips it."""

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


@dataclass(slots=True)
class Job:
    """One job, and the micro-batch it worked for."""

    job: int
    started: int
    line: int
    stages: tuple[int, ...] = ()
    query: str = ""
    run: str = ""
    batch: int = -1
    ended: int = -1
    ended_at_line: int = -1


@dataclass(slots=True)
class Executor:
    """One executor; a core count of 0 means that the log does not tell it."""

    name: str
    cores: int = 0
    added: int = -1
    removed: int = -1
    line: int = -1
    host: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch as its progress event tells it; phases are milliseconds."""

    query: str
    run: str
    batch: int
    start: int
    phases: Mapping[str, float]
    line: int


@dataclass(slots=True)
class Execution:
    """One SQL execution on the driver."""

    started: int
    line: int
    ended: int = -1
    ended_at_line: int = -1
    execution: int = -1


@dataclass(frozen=True, slots=True)
class ApplicationLog:
    """Everything the diagnosis needs of one application's event log."""

    application: str
    name: str
    spark_version: str
    start: int
    end: int
    is_complete: bool
    tasks: Tasks
    stages: Mapping[StageKey, Stage]
    jobs: Mapping[int, Job]
    executors: Mapping[str, Executor]
    executions: tuple[Execution, ...]
    batches: tuple[Batch, ...]
    query_names: Mapping[str, str]
    lines: int
    warnings: Mapping[str, int] = field(default_factory=dict)
