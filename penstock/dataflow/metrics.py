"""Measurements as columns, so that thousands cost microseconds: instances over a window, tasks of a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.graph import LogicalGraph
from penstock.errors import BadMetrics

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def _no_values() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, slots=True)
class InstanceMetrics:
    """The work of one instance of an operator in a window; times in seconds."""

    operator: str
    instance: str
    records_in: float
    records_out: float
    useful_seconds: float
    waiting_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MetricWindow:
    """Metrics of all instances over one span of observed time [start, end), in columns.

    `operator` holds the operator's number in the graph's topological order.
    """

    start: float
    end: float
    operator: Integers
    records_in: Floats
    records_out: Floats
    useful_seconds: Floats
    waiting_seconds: Floats

    def __post_init__(self) -> None:
        if not self.end > self.start:
            raise BadMetrics(f"the window ends at {self.end}, not after its start at {self.start}")
        columns = self.records_in, self.records_out, self.useful_seconds, self.waiting_seconds
        if not _are_sound(columns, len(self.operator)):
            for name in ("records_in", "records_out", "useful_seconds", "waiting_seconds"):
                _check_column(name, getattr(self, name), len(self.operator))

    @property
    def seconds(self) -> float:
        """Observed time W of equations 3 and 4."""
        return self.end - self.start

    @staticmethod
    def of(
        graph: LogicalGraph, start: float, end: float, instances: Iterable[InstanceMetrics]
    ) -> MetricWindow:
        """Build a window from rows; an unknown operator or an instance seen twice is an error."""
        rows = list(instances)
        seen: set[tuple[str, str]] = set()
        for row in rows:
            if row.operator not in graph.index:
                raise BadMetrics(f"metrics of the unknown operator {row.operator!r}")
            if (row.operator, row.instance) in seen:
                raise BadMetrics(f"instance {row.instance!r} of {row.operator!r} reported twice")
            seen.add((row.operator, row.instance))
        return MetricWindow(
            start=start,
            end=end,
            operator=np.array([graph.index[row.operator] for row in rows], dtype=np.int64),
            records_in=np.array([row.records_in for row in rows], dtype=np.float64),
            records_out=np.array([row.records_out for row in rows], dtype=np.float64),
            useful_seconds=np.array([row.useful_seconds for row in rows], dtype=np.float64),
            waiting_seconds=np.array([row.waiting_seconds for row in rows], dtype=np.float64),
        )


def _are_sound(columns: tuple[Floats, Floats, Floats, Floats], length: int) -> bool:
    """Check all columns in few passes; where they fail, `_check_column` names the one at fault."""
    one, two, three, four = columns
    if not len(one) == len(two) == len(three) == len(four) == length > 0:
        return False
    least = np.minimum(np.minimum(one, two), np.minimum(three, four)).min()
    most = np.maximum(np.maximum(one, two), np.maximum(three, four)).max()
    # a NaN makes the minimum NaN, so it is not at least 0
    return bool(least >= 0 and most < np.inf)


def _check_column(name: str, column: NDArray[Any], length: int) -> None:
    if len(column) != length:
        raise BadMetrics(f"{name} has {len(column)} values for {length} instances")
    if length and not (column.min() >= 0 and np.isfinite(column.max())):
        raise BadMetrics(f"{name} has a NaN, infinite or negative value")


@dataclass(frozen=True, slots=True)
class StageExecution:
    """One operator's stage in one batch; a column holds a value per task, in task order.

    `cpu_seconds` counts the executor's JVM, not its Python workers; it is empty where it is unknown. A stage
    that computes in the JVM and has far less of it than of useful time shared its cores with other work.
    """

    operator: str
    records_in: Floats
    records_out: Floats
    useful_seconds: Floats
    waiting_seconds: Floats
    wall_seconds: float
    cpu_seconds: Floats = field(default_factory=_no_values)

    @property
    def tasks(self) -> int:
        """The number of tasks of the stage."""
        return len(self.records_in)


@dataclass(frozen=True, slots=True)
class BatchExecution:
    """One finished micro-batch of one query, with the slots it could use.

    It is not `settled` if executors came or went while it ran, or had just come and were still warming up:
    its times then say nothing about any slot count. `files` is how many the batch took, where its sources are
    files, else None; Spark lists many of them in jobs of their own, which took `listing_seconds`.
    """

    batch_id: int
    start: float
    seconds: float
    slots: int
    input_records: float
    stages: tuple[StageExecution, ...]
    settled: bool = True
    files: int | None = None
    listing_seconds: float = 0.0

    @property
    def serial_seconds(self) -> float:
        """The seconds that no slot can shorten: planning, offset log, commit, gaps between stages."""
        in_tasks = sum(stage.wall_seconds for stage in self.stages) + self.listing_seconds
        return max(0.0, self.seconds - in_tasks)


@dataclass(frozen=True, slots=True)
class RunningStage:
    """One operator's stage in a batch that has not ended.

    `records_done` are those that its finished tasks have read, and `done` has their columns, None while no
    task has finished. `running_seconds` is the age of each running task. A stage that `is_over` has no task
    left to run.
    """

    operator: str
    tasks_total: int
    tasks_done: int
    tasks_running: int
    records_done: float
    done: StageExecution | None = None
    running_seconds: Floats = field(default_factory=_no_values)
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class RunningBatch:
    """A batch that has not ended, `seconds` after its start; `stages` are those that have begun, in order.

    `new_slots` are those of executors that no earlier batch had: the first task of each starts Python and
    compiles code.
    """

    batch_id: int
    start: float
    seconds: float
    slots: int
    stages: tuple[RunningStage, ...]
    new_slots: int = 0
