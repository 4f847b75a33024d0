"""Check a log that was read: times of other years are left out, missing task events are told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.diagnose.log.application import SUCCEEDED, ApplicationLog, SparkJob, Stage, StageKey, Tasks

STRAY_GAP_MS = 90 * 86_400_000
"""No application rests this long: times beyond such a gap are errors if they are few."""
_FEW, _FEW_OF_ALL = 3, 0.05
_OLDEST = (2, 1)

Times = npt.NDArray[np.int64]


def leave_out_stray_times(log: ApplicationLog, begun: int, ended: int) -> ApplicationLog:
    """Return the log without events that are months away from the others, with a warning that counts them.

    `begun` and `ended` are the times of the application's own two events, -1 where they are not logged.
    """
    times = np.sort(_collect_times(log, begun, ended))
    low, high = _find_main_span(times)
    stray = int(((times < low) | (times > high)).sum())
    if not stray:
        return log
    tasks = log.tasks
    kept = _lies_in(tasks["launch"], low, high) & (
        (tasks["finish"] < 0) | _lies_in(tasks["finish"], low, high)
    )
    rows = Tasks({name: column[kept] for name, column in tasks.columns.items()}, tasks.executors)
    inside = times[(times >= low) & (times <= high)]
    warning = f"events left out because they are over {STRAY_GAP_MS // 86_400_000} days from the others"
    return replace(
        log,
        start=log.start if low <= log.start <= high else int(inside[0]),
        end=int(inside[-1]),
        tasks=rows,
        stages={key: _clean_stage(stage, low, high) for key, stage in log.stages.items()},
        jobs={
            number: _clean_job(job, rows, low, high)
            for number, job in log.jobs.items()
            if low <= job.started <= high
        },
        executors={
            name: replace(one, added=_keep(one.added, low, high), removed=_keep(one.removed, low, high))
            for name, one in log.executors.items()
        },
        executions=tuple(
            replace(one, ended=_keep(one.ended, low, high))
            for one in log.executions
            if low <= one.started <= high
        ),
        batches=tuple(one for one in log.batches if low <= one.start <= one.start + one.milliseconds <= high),
        warnings={**log.warnings, warning: log.warnings.get(warning, 0) + stray},
    )


def _collect_times(log: ApplicationLog, *others: int) -> Times:
    """Return the times of all events; a task has two."""
    found = [*others]
    for job in log.jobs.values():
        found += [job.started, job.ended]
    for stage in log.stages.values():
        found += [stage.submitted, stage.completed]
    for executor in log.executors.values():
        found += [executor.added, executor.removed]
    for execution in log.executions:
        found += [execution.started, execution.ended]
    for batch in log.batches:
        found += [batch.start, batch.start + int(batch.milliseconds)]
    times = np.concatenate([log.tasks["launch"], log.tasks["finish"], np.array(found, dtype=np.int64)])
    return times[times >= 0]


def _find_main_span(times: Times) -> tuple[int, int]:
    """Return the first and last of the times without the few that a long gap parts from most of them."""
    if not len(times):
        return 0, 0
    groups = np.split(times, np.nonzero(np.diff(times) > STRAY_GAP_MS)[0] + 1)
    largest = max(range(len(groups)), key=lambda place: len(groups[place]))
    few = max(_FEW, _FEW_OF_ALL * len(times))
    low = high = largest
    while low > 0 and sum(map(len, groups[:low])) > few:
        low -= 1
    while high < len(groups) - 1 and sum(map(len, groups[high + 1 :])) > few:
        high += 1
    return int(groups[low][0]), int(groups[high][-1])


def _lies_in(times: Times, low: int, high: int) -> npt.NDArray[np.bool_]:
    return np.asarray((times >= low) & (times <= high))


def _keep(time: int, low: int, high: int) -> int:
    return time if low <= time <= high else -1


def _clean_stage(stage: Stage, low: int, high: int) -> Stage:
    submitted, completed = _keep(stage.submitted, low, high), _keep(stage.completed, low, high)
    return replace(stage, submitted=submitted, completed=completed)


def _clean_job(job: SparkJob, tasks: Tasks, low: int, high: int) -> SparkJob:
    """Return the job; one whose end is stray ends with the last of its tasks."""
    if job.ended < 0 or low <= job.ended <= high:
        return job
    mine = tasks["finish"][np.isin(tasks["stage"], job.stages)]
    return replace(job, ended=int(mine.max(initial=job.started)))


def count_missing_tasks(log: ApplicationLog) -> ApplicationLog:
    """Return the log with a warning that names the stages whose task events are not all there."""
    lacking = list(_find_lacking(log))
    if not lacking:
        return log
    stage, there, tasks = lacking[0]
    warning = f"stages whose task events are missing (stage {stage} has {there} of {tasks})"
    return replace(log, warnings={**log.warnings, warning: len(lacking)})


def _find_lacking(log: ApplicationLog) -> Iterator[tuple[int, int, int]]:
    """Yield completed stages with too few tasks: the stage, its tasks in the log, and its tasks."""
    partitions, unsuccessful = _count_partitions(log.tasks)
    for key, stage in log.stages.items():
        # a stage that failed or was cancelled ends before all of its tasks ran
        if stage.completed < 0 or stage.failure or key in unsuccessful:
            continue
        there = partitions.get(key, 0)
        if there < stage.tasks:
            yield stage.stage, there, stage.tasks


def _count_partitions(tasks: Tasks) -> tuple[Mapping[StageKey, int], set[StageKey]]:
    """Return the number of partitions that ran in each stage, and the stages in which a task failed."""
    if not len(tasks):
        return {}, set()
    of_task = np.stack([tasks["stage"], tasks["attempt"], tasks["partition"]])
    ran = np.unique(of_task, axis=1)
    keys, counts = np.unique(ran[:2], axis=1, return_counts=True)
    failed = np.unique(of_task[:2, tasks["outcome"] != SUCCEEDED], axis=1)
    found = {(int(stage), int(attempt)): int(n) for stage, attempt, n in zip(*keys, counts, strict=True)}
    return found, {(int(stage), int(attempt)) for stage, attempt in failed.T}


def explain_old_version(version: str) -> str:
    """Return why a log of this Spark cannot be read, or nothing if it can or its version is unknown."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= _OLDEST:
        return ""
    return f"was written by Spark {version}; logs of Spark 2.1 and later can be read"
