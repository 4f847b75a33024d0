"""Write what happened on the modelled cluster as Spark writes its event log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from penstock_lab.experiments.answers.cluster import LOST, PlayedScene, RanBatch, RanJob, RanStage, RanTask

BASE = 1_750_000_000_000
QUERY, RUN = "5b1f7c1e-93a7-4a3d-9d0e-0f6f8a1c2b3d", "0d2a9c55-1f5e-4d8e-8a43-5c7e1b9f6a10"
_SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"
_PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
_MESSAGES = {
    "ExceptionFailure": ("java.lang.IllegalArgumentException", "cannot parse the record"),
    "OutOfMemory": ("java.lang.OutOfMemoryError", "Java heap space"),
}
Event = tuple[float, str, dict[str, Any]]


def write_lines(history: PlayedScene) -> list[bytes]:
    """Return the lines of the log, in the order of their times."""
    start = {"App Name": history.scene.name, "App ID": "app-20250615-0001", "Timestamp": BASE}
    spark = {"spark.app.name": history.scene.name, **history.scene.properties}
    events: list[Event] = [
        (0.0, "SparkListenerLogStart", {"Spark Version": "4.0.0"}),
        (0.0, "SparkListenerEnvironmentUpdate", {"Spark Properties": spark, "System Properties": {}}),
        (0.0, "SparkListenerApplicationStart", start),
    ]
    later = [*_tell_executors(history), *_tell_jobs(history), *_tell_stages(history)]
    later += [*_tell_tasks(history), *_tell_batches(history)]
    events += sorted(later, key=lambda event: event[0])
    events.append((history.ended, "SparkListenerApplicationEnd", {"Timestamp": _stamp(history.ended)}))
    return [
        json.dumps({"Event": name, **fields}, separators=(",", ":")).encode() for _, name, fields in events
    ]


def _stamp(seconds: float) -> int:
    return BASE + round(seconds * 1000)


def _tell_executors(history: PlayedScene) -> Iterator[Event]:
    for at, machine in history.added:
        information = {"Host": machine.host, "Total Cores": machine.cores}
        fields = {"Timestamp": _stamp(at), "Executor ID": machine.name, "Executor Info": information}
        yield at, "SparkListenerExecutorAdded", fields
    for at, name, reason in history.removed:
        fields = {"Timestamp": _stamp(at), "Executor ID": name, "Removed Reason": reason}
        yield at, "SparkListenerExecutorRemoved", fields


def _tell_jobs(history: PlayedScene) -> Iterator[Event]:
    for job in history.jobs:
        properties = {"spark.sql.execution.id": str(job.number)}
        if history.scene.batch:
            properties |= {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": str(job.number)}
        yield job.planned, f"{_SQL}Start", {
            "executionId": job.number, "description": "save at job.py:40", "time": _stamp(job.planned),
            "sparkPlanInfo": {"nodeName": "Execute", "simpleString": "", "children": [], "metrics": []},
        }  # fmt: skip
        yield job.started, "SparkListenerJobStart", {
            "Job ID": job.number, "Submission Time": _stamp(job.started), "Stage IDs": list(job.stages),
            "Stage Infos": [_describe(one) for one in history.stages if one.number in job.stages],
            "Properties": properties,
        }  # fmt: skip
        yield job.ended, "SparkListenerJobEnd", _tell_end(job)
        ended = {"executionId": job.number, "time": _stamp(job.returned)}
        yield job.returned, f"{_SQL}End", ended


def _tell_end(job: RanJob) -> dict[str, Any]:
    result: dict[str, Any] = {"Result": "JobSucceeded"}
    if job.failure:
        result = {"Result": "JobFailed", "Exception": {"Message": job.failure, "Stack Trace": []}}
    return {"Job ID": job.number, "Completion Time": _stamp(job.ended), "Job Result": result}


def _describe(stage: RanStage) -> dict[str, Any]:
    scope = json.dumps({"id": str(stage.number), "name": stage.work.scope})
    return {
        "Stage ID": stage.number, "Stage Attempt ID": 0, "Stage Name": "save at job.py:40",
        "Number of Tasks": len(stage.work.pieces), "Parent IDs": list(stage.parents),
        "RDD Info": [{"RDD ID": 3 * stage.number, "Scope": scope}],
    }  # fmt: skip


def _tell_stages(history: PlayedScene) -> Iterator[Event]:
    for stage in history.stages:
        information = _describe(stage) | {"Submission Time": _stamp(stage.submitted)}
        yield stage.submitted, "SparkListenerStageSubmitted", {"Stage Info": information}
        ended = information | {"Completion Time": _stamp(stage.completed)}
        if stage.failure:
            ended["Failure Reason"] = stage.failure
        # what follows in the same instant comes after it
        yield stage.completed + 1e-6, "SparkListenerStageCompleted", {"Stage Info": ended}


def _tell_tasks(history: PlayedScene) -> Iterator[Event]:
    slowness = {machine.name: machine.slowness for _, machine in history.added}
    scans = {stage.number: stage.work.is_scan for stage in history.stages}
    for task in history.tasks:
        if task.finish >= 0 and task.launch > task.finish:
            continue  # its job was aborted before the driver launched it
        information = {
            "Task ID": task.number, "Index": task.partition, "Attempt": task.attempt,
            "Launch Time": _stamp(task.launch), "Executor ID": task.executor, "Speculative": False,
            "Locality": "PROCESS_LOCAL", "Getting Result Time": 0, "Finish Time": 0, "Failed": False,
            "Killed": False, "Accumulables": [],
        }  # fmt: skip
        of_stage = {"Stage ID": task.stage, "Stage Attempt ID": 0}
        yield task.launch, "SparkListenerTaskStart", of_stage | {"Task Info": information}
        killed = task.reason == "TaskKilled"
        ended = information | {"Finish Time": _stamp(task.finish), "Killed": killed}
        ended |= {"Failed": bool(task.reason) and not killed, "Accumulables": _list_accumulables(task)}
        fields = of_stage | {"Task End Reason": _explain(task), "Task Info": ended}
        if not task.reason:
            fields["Task Metrics"] = _measure(task, slowness[task.executor], scans[task.stage])
        yield task.finish, "SparkListenerTaskEnd", fields


def _explain(task: RanTask) -> dict[str, Any]:
    if not task.reason:
        return {"Reason": "Success"}
    if task.reason == LOST:
        return {"Reason": LOST, "Executor ID": task.executor, "Loss Reason": "Command exited with code 1"}
    if task.reason == "TaskKilled":
        return {"Reason": "TaskKilled", "Kill Reason": "Stage cancelled"}
    name, description = _MESSAGES[task.reason]
    return {"Reason": "ExceptionFailure", "Class Name": name, "Description": description}


def _list_accumulables(task: RanTask) -> list[dict[str, Any]]:
    if not task.piece.commit or task.reason:
        return []
    update = str(round(task.piece.commit * task.stretch * 1000))
    return [{"ID": 9, "Name": "time to commit changes", "Update": update, "Metadata": "sql"}]


def _measure(task: RanTask, slowness: float, is_scan: bool) -> dict[str, Any]:
    """Return the metrics of a task that succeeded, as Spark counts them."""
    piece, stretch = task.piece, task.stretch * 1000
    work = piece.compute * slowness
    run = work + piece.fetch + piece.collect + piece.disk + piece.write + piece.commit
    scanned = {"Bytes Read": piece.bytes_in, "Records Read": piece.records} if is_scan else {}
    shuffled = {} if is_scan else {
        "Remote Bytes Read": piece.bytes_in * 3 // 4, "Local Bytes Read": piece.bytes_in // 4,
        "Total Records Read": piece.records, "Fetch Wait Time": round(piece.fetch * stretch),
        "Remote Blocks Fetched": 12, "Local Blocks Fetched": 4,
    }  # fmt: skip
    written = {"Shuffle Bytes Written": piece.bytes_out, "Shuffle Records Written": piece.records,
               "Shuffle Write Time": round(piece.write * stretch * 1e6)}  # fmt: skip
    return {
        "Executor Deserialize Time": round(piece.deserialise * stretch),
        "Executor Run Time": round(run * stretch),
        # a slow host computes as much, and gets less of a processor for it; what spills is serialised first
        "Executor CPU Time": round((0.96 * piece.compute + 0.2 * piece.disk) * stretch * 1e6),
        "JVM GC Time": round(piece.collect * stretch),
        "Result Serialization Time": 1,
        "Peak Execution Memory": min(2 * piece.bytes_in, 400 << 20),
        "Memory Bytes Spilled": piece.spilled,
        "Disk Bytes Spilled": piece.spilled // 4,
        "Input Metrics": scanned,
        "Shuffle Read Metrics": shuffled,
        "Shuffle Write Metrics": written if piece.bytes_out else {},
    }


def _tell_batches(history: PlayedScene) -> Iterator[Event]:
    for batch in history.batches:
        at = batch.started + batch.phases["triggerExecution"]
        yield at + 1e-6, _PROGRESS, {"progress": _describe_batch(batch)}


def _describe_batch(batch: RanBatch) -> dict[str, Any]:
    moment = datetime.fromtimestamp(_stamp(batch.started) / 1000, tz=UTC).isoformat(timespec="milliseconds")
    seconds = batch.phases["triggerExecution"]
    source = {"numInputRows": batch.rows, "processedRowsPerSecond": batch.rows / seconds}
    state = {
        "operatorName": "stateStoreSave",
        "numRowsTotal": batch.rows,
        "commitTimeMs": round(batch.commit * 1000),
    }
    return {
        "id": QUERY, "runId": RUN, "name": "counts", "batchId": batch.number,
        "timestamp": moment.replace("+00:00", "Z"),
        "durationMs": {name: round(length * 1000) for name, length in batch.phases.items()},
        "sources": [source], "stateOperators": [state] if batch.commit else [],
        "sink": {"numOutputRows": batch.rows},
    }  # fmt: skip
