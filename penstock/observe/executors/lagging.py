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
TELLING_SECONDS = 0.2
"""A shorter task tells nothing: a throttled host runs it before its share of the time is used up."""
LEAST_SECONDS = 1.0
"""Seconds that its tasks lost in a batch; less is no reason for a long batch."""


def find_lagging(tables: Sequence[TaskTable]) -> tuple[LaggingExecutor, ...]:
    """Return the executors of a batch that lag in all their tasks, though these had no more to read."""
    seconds: dict[str, list[float]] = {}
    expected: dict[str, list[float]] = {}
    for table in tables:
        names = np.array(table.executor)
        for name in dict.fromkeys(table.executor):
            mine = names == name
            if not mine.all():
                useful = table.execution.useful_seconds
                seconds.setdefault(name, []).extend(useful[mine].tolist())
                expected.setdefault(name, []).extend(_expect_seconds(table, mine).tolist())
    found = [_judge(name, np.array(seconds[name]), np.array(expected[name])) for name in seconds]
    lagging = tuple(one for one in found if one is not None)
    return lagging if len(lagging) < len(found) else ()


def _expect_seconds(table: TaskTable, mine: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    """Return what these tasks would take elsewhere: the usual seconds, and more for more records."""
    useful, records = table.execution.useful_seconds, table.execution.records_in
    usual = max(1.0, float(np.median(records[~mine])))
    more: Floats = np.maximum(1.0, records[mine] / usual)
    return max(float(np.median(useful[~mine])), 1e-3) * more


def _judge(name: str, seconds: Floats, expected: Floats) -> LaggingExecutor | None:
    telling = np.maximum(seconds, expected) >= TELLING_SECONDS
    seconds, expected = seconds[telling], expected[telling]
    if len(seconds) < FEWEST_TASKS or seconds.sum() - expected.sum() < LEAST_SECONDS:
        return None
    times = float(seconds.sum() / expected.sum())
    if times < LAGS or float((seconds / expected).min()) < LEAST_LAG:
        return None
    return LaggingExecutor(name, times)
