"""Leaves out of a log what ended long ago, so that a log can be followed for as long as it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from penstock.diagnose.application_log import (
    ApplicationLog,
    Batch,
    Column,
    Executor,
    Stage,
    StageKey,
    Tasks,
)


def without_old(log: ApplicationLog, before: int) -> ApplicationLog:
    """The log without what ended before this millisecond.

    Jobs stay whole until they have ended: a task's input is found among the tasks of earlier stages.
    """
    jobs = {number: job for number, job in log.jobs.items() if _lasts(job.ended, before)}
    needed = {stage for job in jobs.values() for stage in job.stages}
    kept = np.isin(log.tasks["stage"], list(needed)) | _lasting(log.tasks["finish"], before)
    needed |= set(log.tasks["stage"][kept].tolist())
    stages = {key: stage for key, stage in log.stages.items() if _stage_lasts(key, stage, needed, before)}
    tasks = Tasks({name: column[kept] for name, column in log.tasks.columns.items()}, log.tasks.executors)
    begun = [before, *(job.started for job in jobs.values()), *tasks["launch"].tolist()]
    executions = tuple(one for one in log.executions if _lasts(one.ended, before))
    return replace(
        log,
        start=min([*begun, *(one.started for one in executions if one.ended >= 0)]),
        tasks=tasks,
        stages=stages,
        jobs=jobs,
        executors=_executors(log.executors, min(begun)),
        executions=executions,
        batches=_batches(log.batches, before),
        warnings={},
    )


def _lasts(ended: int, before: int) -> bool:
    return ended < 0 or ended >= before


def _lasting(ended: Column, before: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray((ended < 0) | (ended >= before))


def _stage_lasts(key: StageKey, stage: Stage, needed: set[int], before: int) -> bool:
    return key[0] in needed or (stage.submitted >= 0 and _lasts(stage.completed, before))


def _executors(executors: Mapping[str, Executor], start: int) -> dict[str, Executor]:
    """Their cores are still needed, the moment of an old one's start is not."""
    there = {name: one for name, one in executors.items() if _lasts(one.removed, start)}
    return {name: one if one.added >= start else replace(one, added=-1) for name, one in there.items()}


def _batches(batches: tuple[Batch, ...], before: int) -> tuple[Batch, ...]:
    """The last batch of a run stays, because it tells that the time before the next one was waiting."""
    last = {batch.run: number for number, batch in enumerate(batches)}
    return tuple(
        batch
        for number, batch in enumerate(batches)
        if batch.start + batch.phases.get("triggerExecution", 0.0) >= before or last[batch.run] == number
    )
