"""One finished batch of a query as it was observed, and what several of them tell together (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.dataflow.metrics import BatchExecution
from penstock.dataflow.window import CriticalWindow, LaggingExecutor
from penstock.observe.latency import Latency
from penstock.observe.progress import BatchProgress
from penstock.observe.stages import TaskTable


@dataclass(frozen=True, slots=True)
class ObservedBatch:
    """One finished batch with its stages' tasks; `tables` is empty where they were not fetched.

    `left_out` says why, where they cannot be used. A batch that waited for `lagging` executors is not
    settled.
    """

    progress: BatchProgress
    tables: tuple[TaskTable, ...]
    slots: int
    settled: bool = True
    critical: CriticalWindow | None = None
    latency: Latency | None = None
    jobs: int = 1
    files: int | None = None
    listing_seconds: float = 0.0
    left_out: str = ""
    lagging: tuple[LaggingExecutor, ...] = ()


def usual_seconds(operator: str, batches: Sequence[ObservedBatch], tasks: int) -> tuple[float, ...]:
    """Return the median of each task over some batches: one slow task is no load."""
    columns = [
        table.execution.useful_seconds
        for batch in batches
        for table in batch.tables
        if table.execution.operator == operator and len(table.executor) == tasks
    ]
    return tuple(float(seconds) for seconds in np.median(np.array(columns), axis=0))


def list_spans(progresses: Sequence[BatchProgress], period: float | None) -> list[float]:
    """Return seconds from each batch's trigger to the next one's; the newest lasts its period or its work."""
    starts = [progress.start for progress in progresses]
    newest = max(period or 0.0, progresses[-1].timeline.total)
    return [*(later - earlier for earlier, later in pairwise(starts)), newest]


def measure_read_rate(batches: Sequence[ObservedBatch], period: float | None, otherwise: float) -> float:
    """Return records read per second, from trigger to trigger: a window's edges cut no batch."""
    if not batches:
        return otherwise
    seconds = sum(list_spans([batch.progress for batch in batches], period))
    return sum(batch.progress.input_records for batch in batches) / seconds if seconds > 0 else otherwise


def describe_execution(batch: ObservedBatch) -> BatchExecution:
    """Return a batch as policies see it."""
    return BatchExecution(
        batch_id=batch.progress.batch_id,
        start=batch.progress.start,
        seconds=batch.progress.timeline.total,
        slots=batch.slots,
        input_records=batch.progress.input_records,
        stages=tuple(table.execution for table in batch.tables),
        settled=batch.settled,
        files=batch.files,
        listing_seconds=batch.listing_seconds,
    )
