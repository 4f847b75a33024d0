"""A batch that has not ended yet, as evidence: what its stages have done, do and have left (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.dataflow.metrics import RunningBatch, RunningStage
from penstock.errors import BadMetrics
from penstock.observe.progress import BatchProgress, SourceProgress
from penstock.observe.stages import OperatorOutline, StageOutline, read_tasks

Fields = Mapping[str, Any]
_BATCH_OF_JOB = re.compile(r"^batch = (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class BegunBatch:
    """A batch that has begun: when its sources were asked, and what they said; it has read nothing yet."""

    batch_id: int
    at: float
    sources: tuple[SourceProgress, ...]


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A running batch with the operators that its stages stand for, and the number of its jobs so far."""

    batch: RunningBatch
    operators: tuple[OperatorOutline, ...]
    jobs: int = 1

    @property
    def read_by_leaf(self) -> dict[str, float]:
        """Records that each operator which nothing feeds will have read, by those of its finished tasks."""
        stages = {stage.operator: stage for stage in self.batch.stages}
        leaves = [stages[one.name] for one in self.operators if not one.fed_by and one.name in stages]
        return {
            leaf.operator: leaf.records_done * leaf.tasks_total / leaf.tasks_done if leaf.tasks_done else 0.0
            for leaf in leaves
        }


def batch_of_job(job: Fields) -> int | None:
    """Return the batch that Spark's description of a job names; None where user code set another one."""
    named = _BATCH_OF_JOB.search(job.get("description") or "")
    return int(named.group(1)) if named else None


def find_running_jobs(
    jobs: Iterable[dict[str, Any]], run_id: str, reported: BatchProgress | None
) -> tuple[int, list[dict[str, Any]]]:
    """Return the batch that follows the one last reported, and its jobs so far; none if it has not begun."""
    ended, since = -1, 0.0
    if reported is not None:
        # a report that there is nothing to do bears the number of the batch that will come
        ended, since = reported.batch_id - (not reported.executed), reported.end
    found: dict[int, list[dict[str, Any]]] = {}
    for job in jobs:
        if job.get("jobGroup") == run_id:
            named = batch_of_job(job)
            later = (job.get("submissionTime") or 0) / 1000 > since
            number = named if named is not None else ended + later
            found.setdefault(number, []).append(job)
    newest = max(found, default=ended)
    return newest, found[newest] if newest > ended else []


def explain_trouble(batch_id: int, jobs: Iterable[Fields], is_over: bool = True) -> str | None:
    """Say why the tasks of a batch are not judged: a part of it failed, or goes on after its end."""
    found = list(jobs)
    if any(job["numFailedStages"] or (is_over and job["status"] == "FAILED") for job in found):
        return (
            f"batch {batch_id} is left out: a part of it failed and may have run again, as after the loss of "
            "an executor, so its times are not those of its work"
        )
    if is_over and any(job["status"] != "SUCCEEDED" for job in found):
        return f"batch {batch_id} is left out: a job of it went on after its end"
    return None


def choose_stages(stages: Mapping[int, Fields], outlines: Mapping[int, StageOutline]) -> list[int]:
    """Return the stages that run in this batch, in order.

    Spark lists a stage again in each job that uses its output: such a one has no task of its own, and what it
    is made of has already run under another number.
    """
    ran: set[int] = set()
    chosen = []
    for number in sorted(stages):
        begun = stages[number]["status"] not in ("PENDING", "SKIPPED")
        rdds = outlines[number].rdds
        if begun or (stages[number]["status"] == "PENDING" and not rdds <= ran):
            chosen.append(number)
        if begun:
            ran |= rdds
    return chosen


def read_running_stage(operator: str, stage: Fields, tasks: Sequence[Fields]) -> RunningStage:
    """Turn Spark's account of a stage, and its tasks so far, into one running stage."""
    try:
        # a task that was just launched has no duration yet
        ages = [(task.get("duration") or 0) / 1000 for task in tasks if task.get("status") == "RUNNING"]
        total, active = int(stage["numTasks"]), int(stage["numActiveTasks"])
        is_over = stage["status"] == "COMPLETE"
        has_done = any(task.get("status") == "SUCCESS" and task.get("taskMetrics") for task in tasks)
    except (KeyError, TypeError, ValueError) as error:
        raise BadMetrics(f"{operator}: a running stage cannot be read: {error!r}") from error
    done = read_tasks(operator, tasks).execution if has_done else None
    return RunningStage(
        operator=operator,
        tasks_total=total,
        tasks_done=0 if done is None else done.tasks,
        tasks_running=active,
        records_done=0.0 if done is None else float(done.records_in.sum()),
        done=done,
        running_seconds=np.array(ages, dtype=np.float64),
        is_over=is_over,
    )
