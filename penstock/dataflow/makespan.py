"""How long a stage's tasks keep its slots busy."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from penstock.dataflow.metrics import Floats


def makespan(task_seconds: Floats | Sequence[float], slots: int) -> float:
    """Seconds until the last task ends when, in task order, each takes the slot that is free first.

    Spark hands out the tasks of a stage in this way, so whole waves, a short last wave and a long last
    task all show.
    """
    if slots < 1:
        raise ValueError(f"a stage needs at least one slot, not {slots}")
    # plain floats: a heap of them is several times faster than one of array elements
    seconds = task_seconds.tolist() if isinstance(task_seconds, np.ndarray) else list(task_seconds)
    if not seconds:
        return 0.0
    if slots == 1:
        return sum(seconds)
    busy_until = seconds[:slots]
    if len(seconds) <= slots:
        return max(busy_until)
    heapq.heapify(busy_until)
    for task in seconds[slots:]:
        heapq.heapreplace(busy_until, busy_until[0] + task)
    return max(busy_until)
