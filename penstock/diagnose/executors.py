"""Finds the executor that is slow by itself: its tasks take longer than others of the same operator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.diagnose.application_log import SUCCEEDED, ApplicationLog, StageKey

# Tasks that take this many times as long as those of all other executors, and do not read that much more.
SLOWER = 2.0
MORE_RECORDS = 1.25


def find_slow_executor(
    log: ApplicationLog, operator: str, names: Mapping[StageKey, str]
) -> tuple[str, float] | None:
    """The slowest executor among those that ran the operator, and how many times as long its tasks take."""
    tasks = log.tasks
    stages = [stage for (stage, _), name in names.items() if name == operator]
    rows = np.nonzero(np.isin(tasks["stage"], stages) & (tasks["outcome"] == SUCCEEDED))[0]
    executor, seconds = tasks["executor"][rows], (tasks["finish"] - tasks["launch"])[rows] / 1000
    medians = {int(one): float(np.median(seconds[executor == one])) for one in np.unique(executor)}
    if len(medians) < 2:
        return None
    slowest = max(medians, key=lambda one: medians[one])
    mine = executor == slowest
    # Even its quickest task must be slower than the others, else one hot task would explain it.
    ratio = float(seconds[mine].min() / max(np.median(seconds[~mine]), 1e-3))
    records = tasks["records_in"][rows]
    fair = np.median(records[mine]) <= MORE_RECORDS * max(float(np.median(records[~mine])), 1.0)
    return (tasks.executors[slowest], ratio) if ratio >= SLOWER and fair and mine.sum() > 1 else None
