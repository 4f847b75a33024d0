"""Find the critical path of a finished batch of a running query, from Spark's status store.

The batch's tasks, jobs and progress report are turned into the form of an event log, so that live batches and
logs share timelines, graph and passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.dataflow.window import CriticalWindow, HotTask, SlowExecutor
from penstock.diagnose.answer import answer_in_words
from penstock.diagnose.causes import share_by_cause, sum_task_share
from penstock.diagnose.explain import list_findings
from penstock.diagnose.findings.stragglers import Straggler, find_slow_executor, find_straggler
from penstock.diagnose.log.application import (
    LIVE_OUTCOMES,
    RUNNING,
    TASK_COLUMNS,
    ApplicationLog,
    Batch,
    Executor,
    Fields,
    SparkJob,
    Stage,
    Tasks,
    read_live_metrics,
)
from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.path.participation import cut_windows, measure_participation
from penstock.diagnose.path.summary import Summary, summarise
from penstock.diagnose.trace.driver_timeline import DRIVER
from penstock.diagnose.trace.from_log import build_timelines
from penstock.diagnose.whatif.replay import replay
from penstock.diagnose.whatif.task_graph import build_task_graph

# A line after every task: Spark reports a batch's phases when the batch is over.
_LAST = 1 << 40


@dataclass(frozen=True, slots=True)
class LiveStage:
    """A stage of the batch: its operator, those that feed it, and its tasks as Spark lists them."""

    stage: int
    operator: str
    fed_by: tuple[str, ...]
    stateful: bool
    tasks: Sequence[Fields]


@dataclass(frozen=True, slots=True)
class LiveBatch:
    """A batch: its start in seconds since the epoch; phases, state loads and commits in milliseconds."""

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


def find_critical_window(batch: LiveBatch) -> CriticalWindow | None:
    """Return the batch's critical path, or None if its times do not make one."""
    log = build_batch_log(batch)
    names = {(stage.stage, 0): stage.operator for stage in batch.stages}
    graph = build_graph(build_timelines(log, names).build_trace(), gap_threshold_us=0)
    window = next(iter(cut_windows(graph)), None)
    if window is None or window.start_us >= window.end_us:
        return None
    summary = summarise(graph, measure_participation(graph, window))
    tasks = build_task_graph(log)
    shares = _share_by_operator(summary)
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
        task_share=sum_task_share(summary),
        replayed_seconds=replay(tasks, max(1, batch.slots)).seconds,
        least_seconds=replay(tasks, max(1, len(log.tasks))).seconds,
        hot_task=_to_hot_task(find_straggler(log, worst, names), worst, summary),
        answer=answer_in_words(list_findings(summary, log, names)),
        causes={cause: share for cause, share in share_by_cause(summary).items() if share > 0},
        slow_executor=_to_slow_executor(find_slow_executor(log, worst, names), worst, summary),
    )


def build_batch_log(batch: LiveBatch) -> ApplicationLog:
    """Return the batch as the log of an application that did nothing else."""
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
        tasks=Tasks(_to_columns(batch, rows, executors), executors),
        stages=_to_stages(batch),
        jobs={int(job["jobId"]): _to_job(job) for job in batch.jobs},
        executors={name: Executor(name, batch.cores.get(name, 0)) for name in executors},
        executions=(),
        batches=(Batch("run", start, batch.phases, _LAST),),
        query_names={},
        lines=_LAST,
    )


def _to_job(job: Fields) -> SparkJob:
    started = int(job["submissionTime"])
    ended = int(job.get("completionTime") or -1)
    stages = tuple(int(stage) for stage in job["stageIds"])
    return SparkJob(int(job["jobId"]), started, -1, stages, "query", ended, _LAST - 1)


def _to_stages(batch: LiveBatch) -> dict[tuple[int, int], Stage]:
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


def _to_columns(
    batch: LiveBatch, rows: Sequence[tuple[LiveStage, Fields]], executors: Sequence[str]
) -> dict[str, np.ndarray[Any, np.dtype[np.int64]]]:
    place = {name: number for number, name in enumerate(executors)}
    stateful = sum(len(stage.tasks) for stage in batch.stages if stage.stateful)
    # Spark reports these live only as sums over all tasks: each stateful task gets an equal part
    load, commit = (round(ms / max(stateful, 1)) for ms in (batch.state_load_ms, batch.state_commit_ms))
    table = {name: np.zeros(len(rows), dtype=np.int64) for name in TASK_COLUMNS}
    for number, (stage, task) in enumerate(rows):
        values = _to_task(task) | {
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


def _to_task(task: Fields) -> dict[str, int]:
    launch = int(task["launchTime"])
    outcome = LIVE_OUTCOMES.get(str(task.get("status")), RUNNING)
    ended = outcome != RUNNING and task.get("duration") is not None
    times = {
        "partition": int(task.get("index", -1)),
        "launch": launch,
        "finish": launch + int(task["duration"]) if ended else -1,
        "getting_result": int(task.get("resultFetchStart") or -1),
        "outcome": outcome if ended else RUNNING,
    }
    return times | read_live_metrics(task.get("taskMetrics") or {})


def _share_by_operator(summary: Summary) -> dict[str, float]:
    shares: dict[str, float] = {}
    for work, share in summary.work.items():
        if work.operator not in {"", DRIVER} and work.phase != "task launch":
            shares[work.operator] = shares.get(work.operator, 0.0) + share
    return shares


def _to_slow_executor(
    found: tuple[str, float] | None, operator: str, summary: Summary
) -> SlowExecutor | None:
    if found is None:
        return None
    executor, times = found
    return SlowExecutor(executor, operator, times, share=sum(_list_slot_shares(summary, executor)))


def _to_hot_task(straggler: Straggler | None, operator: str, summary: Summary) -> HotTask | None:
    if straggler is None:
        return None
    return HotTask(
        operator=operator,
        executor=straggler.executor,
        partition=straggler.partition,
        seconds=straggler.seconds,
        times_median=straggler.ratio,
        share=max(_list_slot_shares(summary, straggler.executor), default=0.0),
    )


def _list_slot_shares(summary: Summary, executor: str) -> list[float]:
    return [share for name, share in summary.worker.items() if name.startswith(f"executor {executor} slot")]
