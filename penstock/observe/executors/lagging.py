"""Finds executors that lag behind the others in a batch: throttled, starved or broken hosts (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.dataflow.window import LaggingExecutor
from penstock.observe.stages import TaskTable

LAGS = 4.0
"""Times as long as the same work elsewhere; hosts of two generations differ by less."""
LEAST_LAG = 2.0
"""Even the quickest task of a lagging executor is so much slower, or one long task would explain it."""
FEWEST_TASKS = 2
"""Different tasks: what takes long in one alone may be that task's records."""
BATCHES_POOLED = 3
"""A batch may have one task for each executor, so the newest few count together."""
TELLING_SECONDS = 0.2
"""A shorter task tells nothing: a throttled host runs it before its share of the time is used up."""
LEAST_SECONDS = 1.0
"""Seconds that its tasks lost in a batch; less is no reason for a long batch."""


def find_lagging_lately(batches: Sequence[Sequence[TaskTable]]) -> tuple[LaggingExecutor, ...]:
    """Return the executors that lag in the newest batch, by its tasks or those of the last few together."""
    newest = {name for table in batches[-1] for name in table.executor} if batches else set()
    for count in range(1, min(BATCHES_POOLED, len(batches)) + 1):
        found = find_lagging([table for tables in batches[-count:] for table in tables])
        if any(one.executor in newest for one in found):
            return tuple(one for one in found if one.executor in newest)
    return ()


def find_lagging(tables: Sequence[TaskTable]) -> tuple[LaggingExecutor, ...]:
    """Return the executors that lag in all their tasks of these stages, though these had no more to read."""
    tasks: dict[str, list[tuple[float, float]]] = {}
    different: dict[str, set[tuple[str, int]]] = {}
    for table in tables:
        names, useful = np.array(table.executor), table.execution.useful_seconds
        for name in dict.fromkeys(table.executor):
            mine = names == name
            if not mine.all():
                expected = _expect_seconds(table, mine)
                telling = np.maximum(useful[mine], expected) >= TELLING_SECONDS
                tasks.setdefault(name, []).extend(zip(useful[mine][telling], expected[telling], strict=True))
                numbers = np.nonzero(mine)[0][telling].tolist()
                different.setdefault(name, set()).update((table.execution.operator, one) for one in numbers)
    found = [_judge(name, tasks[name], len(different[name])) for name in tasks]
    lagging = tuple(one for one in found if one is not None)
    return lagging if len(lagging) < len(found) else ()


def _expect_seconds(table: TaskTable, mine: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    """Return what these tasks would take elsewhere: the usual seconds, and more for more records."""
    useful, records = table.execution.useful_seconds, table.execution.records_in
    usual = max(1.0, float(np.median(records[~mine])))
    more: Floats = np.maximum(1.0, records[mine] / usual)
    return max(float(np.median(useful[~mine])), 1e-3) * more


def _judge(name: str, tasks: Sequence[tuple[float, float]], different: int) -> LaggingExecutor | None:
    if different < FEWEST_TASKS:
        return None
    seconds, expected = np.array(tasks).T
    times = float(seconds.sum() / expected.sum())
    if times < LAGS or seconds.sum() - expected.sum() < LEAST_SECONDS:
        return None
    return LaggingExecutor(name, times) if float((seconds / expected).min()) >= LEAST_LAG else None
