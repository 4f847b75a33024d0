"""A finished batch of a running query, as the status store tells of it, becomes its critical path (pure).

The tasks, jobs and progress report of the batch are brought into the form of an event log, so that live
batches and logs go through the same timelines, graph and passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.dataflow.critical import CriticalWindow, HotTask, SlowExecutor
from penstock.diagnose.activity_graph import activity_graph
from penstock.diagnose.answer import (
    Straggler,
    cause_shares,
    find_straggler,
    findings,
    plain_answer,
    task_share,
)
from penstock.diagnose.application_log import (
    FAILED,
    KILLED,
    RUNNING,
    SUCCEEDED,
    TASK_COLUMNS,
    ApplicationLog,
    Batch,
    Executor,
    Job,
    Stage,
    Tasks,
)
from penstock.diagnose.driver_timeline import DRIVER
from penstock.diagnose.executors import find_slow_executor
from penstock.diagnose.log_trace import trace_of_log
from penstock.diagnose.participation import participation, windows
from penstock.diagnose.replay import replay, task_graph
from penstock.diagnose.summary import Summary, summarise
from penstock.diagnose.task_metrics import Fields, live_measures

_OUTCOMES = {"SUCCESS": SUCCEEDED, "FAILED": FAILED, "KILLED": KILLED, "RUNNING": RUNNING}
# A place behind every task: Spark tells a batch's phases only when it is over.
_LAST = 1 << 40


@dataclass(frozen=True, slots=True)
class LiveStage:
    """One stage of the batch: its operator, those that feed it, and its tasks as Spark lists them."""

    stage: int
    operator: str
    fed_by: tuple[str, ...]
    stateful: bool
    tasks: Sequence[Fields]


@dataclass(frozen=True, slots=True)
class LiveBatch:
    """One batch: its trigger in seconds since the epoch, phases, state loads and commits in milliseconds."""

    batch_id: int
    start: float
    phases: Mapping[str, float]
    input_records: float
    state_load_ms: float
    state_commit_ms: float
    slots: int
    cores: Mapping[str, int]
    jobs: Sequence[Fields]
    stages: Sequence[LiveStage]


def critical_window(batch: LiveBatch) -> CriticalWindow | None:
    """What was on the batch's critical path; nothing where its times do not make a path."""
    log = batch_log(batch)
    names = {(stage.stage, 0): stage.operator for stage in batch.stages}
    graph = activity_graph(trace_of_log(log, names).trace, gap_threshold_us=0)
    window = next(iter(windows(graph)), None)
    if window is None or window.start_us >= window.end_us:
        return None
    summary = summarise(graph, participation(graph, window))
    tasks = task_graph(log)
    shares = _operators(summary)
    worst = max(shares, key=lambda name: shares[name], default="")
    return CriticalWindow(
        batch_id=batch.batch_id,
        start=batch.start,
        end=log.end / 1000,
        slots=batch.slots,
        input_records=batch.input_records,
        activity=summary.activity,
        worker=summary.worker,
        operator=shares,
        task_share=task_share(summary),
        replayed_seconds=replay(tasks, max(1, batch.slots)).seconds,
        least_seconds=replay(tasks, max(1, len(log.tasks))).seconds,
        hot_task=_hot(find_straggler(log, worst, names), summary),
        answer=plain_answer(findings(summary, log, names)),
        causes={cause: share for cause, share in cause_shares(summary).items() if share > 0},
        slow_executor=_slow(find_slow_executor(log, worst, names), worst, summary),
    )


def batch_log(batch: LiveBatch) -> ApplicationLog:
    """The batch in the form of an application's log that holds nothing else."""
    rows = [(stage, task) for stage in batch.stages for task in stage.tasks]
    rows.sort(key=lambda row: row[1]["launchTime"])
    executors = tuple(dict.fromkeys(str(task["executorId"]) for _, task in rows))
    start = round(batch.start * 1000)
    end = start + round(batch.phases.get("triggerExecution", 0.0))
    return ApplicationLog(
        application="",
        name="",
        spark_version="",
        start=start,
        end=max([end, *(int(job.get("completionTime") or end) for job in batch.jobs)]),
        is_complete=True,
        tasks=Tasks(_columns(batch, rows, executors), executors),
        stages=_stages(batch),
        jobs={int(job["jobId"]): _job(job) for job in batch.jobs},
        executors={name: Executor(name, batch.cores.get(name, 0)) for name in executors},
        executions=(),
        batches=(Batch("query", "run", batch.batch_id, start, batch.phases, _LAST),),
        query_names={},
        lines=_LAST,
    )


def _job(job: Fields) -> Job:
    started = int(job["submissionTime"])
    ended = int(job.get("completionTime") or -1)
    stages = tuple(int(stage) for stage in job["stageIds"])
    return Job(int(job["jobId"]), started, -1, stages, "query", "run", 0, ended, _LAST - 1)


def _stages(batch: LiveBatch) -> dict[tuple[int, int], Stage]:
    ids = {stage.operator: stage.stage for stage in batch.stages}
    return {
        (stage.stage, 0): Stage(
            stage.stage,
            0,
            chain=stage.operator,
            tasks=len(stage.tasks),
            parents=tuple(ids[name] for name in stage.fed_by if name in ids),
        )
        for stage in batch.stages
    }


def _columns(
    batch: LiveBatch, rows: Sequence[tuple[LiveStage, Fields]], executors: Sequence[str]
) -> dict[str, np.ndarray[Any, np.dtype[np.int64]]]:
    place = {name: number for number, name in enumerate(executors)}
    stateful = sum(len(stage.tasks) for stage in batch.stages if stage.stateful)
    # Spark reports these live only as sums over all tasks, so each task is given the same part of them.
    load, commit = (round(ms / max(stateful, 1)) for ms in (batch.state_load_ms, batch.state_commit_ms))
    table = {name: np.zeros(len(rows), dtype=np.int64) for name in TASK_COLUMNS}
    for number, (stage, task) in enumerate(rows):
        values = _task(task) | {
            "stage": stage.stage,
            "executor": place[str(task["executorId"])],
            "state_load": load if stage.stateful else 0,
            "state_commit": commit if stage.stateful else 0,
            "started": number,
            "ended": len(rows) + number,
        }
        for name, value in values.items():
            table[name][number] = value
    return table


def _task(task: Fields) -> dict[str, int]:
    launch = int(task["launchTime"])
    outcome = _OUTCOMES.get(str(task.get("status")), RUNNING)
    ended = outcome != RUNNING and task.get("duration") is not None
    times = {
        "partition": int(task.get("index", -1)),
        "launch": launch,
        "finish": launch + int(task["duration"]) if ended else -1,
        "getting_result": int(task.get("resultFetchStart") or -1),
        "outcome": outcome if ended else RUNNING,
        "speculative": int(bool(task.get("speculative"))),
    }
    return times | live_measures(task.get("taskMetrics") or {})


def _operators(summary: Summary) -> dict[str, float]:
    shares: dict[str, float] = {}
    for work, share in summary.work.items():
        if work.operator not in {"", DRIVER} and work.phase != "task launch":
            shares[work.operator] = shares.get(work.operator, 0.0) + share
    return shares


def _slow(found: tuple[str, float] | None, operator: str, summary: Summary) -> SlowExecutor | None:
    if found is None:
        return None
    executor, times = found
    mine = (v for name, v in summary.worker.items() if name.startswith(f"executor {executor} slot"))
    return SlowExecutor(executor, operator, times, share=sum(mine))


def _hot(straggler: Straggler | None, summary: Summary) -> HotTask | None:
    if straggler is None:
        return None
    mine = (v for name, v in summary.worker.items() if name.startswith(f"executor {straggler.executor} slot"))
    return HotTask(
        operator=straggler.operator,
        executor=straggler.executor,
        partition=straggler.partition,
        seconds=straggler.seconds,
        times_median=straggler.ratio,
        share=max(mine, default=0.0),
    )
