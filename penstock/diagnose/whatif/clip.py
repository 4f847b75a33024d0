"""A part of an application's time as a log of its own, so that a replay is about the span asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.diagnose.log.application import RUNNING, SUCCEEDED, ApplicationLog, SparkJob, Tasks

# Lengths of a task's phases: a task that the span cuts keeps its share of each.
_LENGTHS = (
    "deserialise", "run", "cpu", "python", "gc", "fetch_wait", "shuffle_write", "state_load", "state_commit",
    "result_serialise",
)  # fmt: skip


def clip_log(log: ApplicationLog, start: int, end: int) -> ApplicationLog:
    """Return what happened between two milliseconds; jobs and tasks that reach beyond are cut there."""
    start, end = max(start, log.start), min(end, log.end)
    if (start, end) == (log.start, log.end):
        return log
    tasks = _clip_tasks(log, start, end)
    ran = set(zip(tasks["stage"].tolist(), tasks["attempt"].tolist(), strict=True))
    jobs = (_clip_job(job, start, end) for job in log.jobs.values())
    return replace(
        log,
        start=start,
        end=end,
        tasks=tasks,
        jobs={job.job: job for job in jobs if job},
        stages={key: stage for key, stage in log.stages.items() if key in ran or key[1] == 0},
        failures=tuple(one for one in log.failures if start <= one.at <= end),
    )


def _clip_job(job: SparkJob, start: int, end: int) -> SparkJob | None:
    ended = end if job.ended < 0 else job.ended
    if ended <= start or job.started >= end:
        return None
    failure = job.failure if ended <= end else ""
    return replace(job, started=max(job.started, start), ended=min(ended, end), failure=failure)


def _clip_tasks(log: ApplicationLog, start: int, end: int) -> Tasks:
    tasks = log.tasks
    finish = np.where(tasks["finish"] >= 0, tasks["finish"], end)
    kept = np.nonzero((tasks["launch"] < end) & (finish > start))[0]
    columns = {name: column[kept] for name, column in tasks.columns.items()}
    launch, finish = columns["launch"], finish[kept]
    columns["launch"], columns["finish"] = np.maximum(launch, start), np.minimum(finish, end)
    share = (columns["finish"] - columns["launch"]) / np.maximum(finish - launch, 1)
    for name in _LENGTHS:
        columns[name] = np.rint(columns[name] * share).astype(np.int64)
    later = (finish > end) & (columns["outcome"] != SUCCEEDED)
    columns["outcome"] = np.where(later, RUNNING, columns["outcome"])
    return Tasks(columns, tasks.executors)
