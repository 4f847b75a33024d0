"""Finds executors that lag behind the others in a batch: throttled, starved or broken hosts (pure)."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.dataflow.window import LaggingExecutor
from penstock.observe.stages import TaskTable

TaskName = tuple[str, int]
"""The operator and the number of a task in it."""
Chosen = np.ndarray[tuple[int], np.dtype[np.bool_]]

LAGS = 4.0
"""Times as long as the same work elsewhere; hosts of two generations differ by less."""
LEAST_LAG = 2.0
"""Even the quickest task of a lagging executor is so much slower, or one long task would explain it."""
FEWEST_TASKS = 2
"""Different tasks: what takes long in one alone may be that task's records, unless it was quick before."""
BATCHES_POOLED = 3
"""A batch may have one task for each executor, so the newest few count together."""
TELLING_SECONDS = 0.2
"""A shorter task tells nothing: a throttled host runs it before its share of the time is used up."""
LEAST_SECONDS = 1.0
"""Seconds that its tasks lost in a batch; less is no reason for a long batch."""


def find_lagging_lately(batches: Sequence[Sequence[TaskTable]]) -> tuple[LaggingExecutor, ...]:
    """Return the executors that lag in the newest batch, by its tasks or those of the last few together."""
    newest = {name for table in batches[-1] for name in table.executor} if batches else set()
    usual = {one for tables in batches[-BATCHES_POOLED:-1] for table in tables for one in _find_usual(table)}
    for count in range(1, min(BATCHES_POOLED, len(batches)) + 1):
        found = find_lagging([table for tables in batches[-count:] for table in tables], usual)
        if any(one.executor in newest for one in found):
            return tuple(one for one in found if one.executor in newest)
    return ()


def _find_usual(table: TaskTable) -> list[TaskName]:
    """Return the tasks that took no longer than the others, whatever executor they were on."""
    useful = table.execution.useful_seconds
    everything = np.ones(len(useful), dtype=np.bool_)
    expected = _expect_seconds(table, others=everything, of=everything)
    return [(table.execution.operator, int(one)) for one in np.nonzero(useful < LEAST_LAG * expected)[0]]


def find_lagging(
    tables: Sequence[TaskTable], usual: Set[TaskName] = frozenset()
) -> tuple[LaggingExecutor, ...]:
    """Return the executors that lag in all their tasks of these stages, though these had no more to read.

    `usual` are the tasks that took no longer than others before.
    """
    tasks: dict[str, list[tuple[float, float]]] = {}
    different: dict[str, set[TaskName]] = {}
    for table in tables:
        names, useful = np.array(table.executor), table.execution.useful_seconds
        for name in dict.fromkeys(table.executor):
            mine = names == name
            if not mine.all():
                expected = _expect_seconds(table, others=~mine, of=mine)
                telling = np.maximum(useful[mine], expected) >= TELLING_SECONDS
                tasks.setdefault(name, []).extend(zip(useful[mine][telling], expected[telling], strict=True))
                numbers = np.nonzero(mine)[0][telling].tolist()
                different.setdefault(name, set()).update((table.execution.operator, one) for one in numbers)
    found = [
        _judge(name, tasks[name]) if len(different[name]) >= FEWEST_TASKS or different[name] & usual else None
        for name in tasks
    ]
    lagging = tuple(one for one in found if one is not None)
    return lagging if len(lagging) < len(found) else ()


def _expect_seconds(table: TaskTable, others: Chosen, of: Chosen) -> Floats:
    """Return what tasks would take as the others do: their usual seconds, and more for more records."""
    useful, records = table.execution.useful_seconds, table.execution.records_in
    usual = max(1.0, float(np.median(records[others])))
    more: Floats = np.maximum(1.0, records[of] / usual)
    return max(float(np.median(useful[others])), 1e-3) * more


def _judge(name: str, tasks: Sequence[tuple[float, float]]) -> LaggingExecutor | None:
    seconds, expected = np.array(tasks).T
    times = float(seconds.sum() / expected.sum())
    if times < LAGS or seconds.sum() - expected.sum() < LEAST_SECONDS:
        return None
    return LaggingExecutor(name, times) if float((seconds / expected).min()) >= LEAST_LAG else None
