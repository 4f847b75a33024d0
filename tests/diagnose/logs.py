"""Builds small event logs line by line, as Spark writes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

BASE = 1_700_000_000_000


class LogBuilder:
    """Collects event lines; times are milliseconds after `BASE`."""

    def __init__(self, version="4.3.0"):
        self.lines: list[bytes] = []
        self.tasks = 0
        self.add("SparkListenerLogStart", **{"Spark Version": version})
        self.add(
            "SparkListenerApplicationStart", **{"App Name": "demo", "App ID": "app-1", "Timestamp": BASE}
        )

    def add(self, event, **fields):
        self.lines.append(json.dumps({"Event": event, **fields}, separators=(",", ":")).encode())
        return self

    def executor(self, name, at, cores=2):
        fields = {"Timestamp": BASE + at, "Executor ID": name, "Executor Info": {"Total Cores": cores}}
        return self.add("SparkListenerExecutorAdded", **fields)

    def job(self, job, at, stages, properties=None, skipped=()):
        """`skipped` stages, told as (stage, rdd), are those whose output is there already."""
        fields = {
            "Stage Infos": [{"Stage ID": stage, "RDD Info": [{"RDD ID": rdd}]} for stage, rdd in skipped],
            "Job ID": job,
            "Submission Time": BASE + at,
            "Stage IDs": stages,
            "Properties": properties or {},
        }
        return self.add("SparkListenerJobStart", **fields)

    def job_end(self, job, at):
        return self.add("SparkListenerJobEnd", **{"Job ID": job, "Completion Time": BASE + at})

    def stage(self, stage, at, tasks, parents=(), scope="Scan", done=None):
        information = {
            "Stage ID": stage, "Stage Attempt ID": 0, "Stage Name": f"count at job.py:{stage}",
            "Number of Tasks": tasks, "Parent IDs": list(parents), "Submission Time": BASE + at,
            "RDD Info": [{"RDD ID": stage, "Scope": json.dumps({"id": "1", "name": scope})}],
        }  # fmt: skip
        if done is None:
            return self.add("SparkListenerStageSubmitted", **{"Stage Info": information})
        information["Completion Time"] = BASE + done
        return self.add("SparkListenerStageCompleted", **{"Stage Info": information})

    def start(self, stage, task, executor, launch):
        information = {"Task ID": task, "Index": task, "Launch Time": BASE + launch, "Executor ID": executor}
        return self.add("SparkListenerTaskStart", **{"Stage ID": stage, "Task Info": information})

    def end(
        self, stage, task, executor, launch, finish, reason="Success", getting=0, metrics=True, **lengths
    ):
        information = {
            "Task ID": task, "Index": task, "Launch Time": BASE + launch, "Executor ID": executor,
            "Finish Time": BASE + finish, "Getting Result Time": BASE + getting if getting else 0,
            "Failed": reason != "Success", "Killed": reason == "TaskKilled",
            "Accumulables": [
                {"Name": "time to commit changes", "Update": str(lengths.get("commit", 0))},
                {"Name": "time to execute Python code", "Update": lengths.get("python", 0)},
                {"Name": "RocksDB: load - time taken to load the store", "Update": lengths.get("load", 0)},
            ],
        }  # fmt: skip
        fields = {"Stage ID": stage, "Task End Reason": {"Reason": reason}, "Task Info": information}
        if metrics:
            fields["Task Metrics"] = {
                "Executor Deserialize Time": lengths.get("deserialise", 0),
                "Executor Run Time": lengths.get("run", finish - launch),
                "Executor CPU Time": lengths.get("cpu", 0) * 1_000_000,
                "JVM GC Time": lengths.get("gc", 0),
                "Result Serialization Time": lengths.get("serialise", 0),
                "Shuffle Read Metrics": {
                    "Fetch Wait Time": lengths.get("fetch", 0), "Remote Bytes Read": lengths.get("remote", 0),
                },
                "Shuffle Write Metrics": {
                    "Shuffle Write Time": lengths.get("write", 0) * 1_000_000,
                    "Shuffle Bytes Written": lengths.get("written", 0),
                },
            }  # fmt: skip
        return self.add("SparkListenerTaskEnd", **fields)

    def progress(self, batch, at, phases, **told):
        moment = datetime.fromtimestamp((BASE + at) / 1000, tz=UTC).isoformat(timespec="milliseconds")
        progress = {"id": "abcdefgh-1", "runId": "r", "batchId": batch, "name": "counts", "sources": [],
                    "timestamp": moment.replace("+00:00", "Z"), "durationMs": phases, **told}  # fmt: skip
        name = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
        return self.add(name, progress=progress)

    def application_end(self, at):
        return self.add("SparkListenerApplicationEnd", Timestamp=BASE + at)


def skewed_job():
    """Two stages on two executors; one reduce task runs six times as long as the others."""
    log = LogBuilder().executor("1", 100).executor("2", 110)
    log.job(0, 1000, [0, 1]).stage(0, 1010, 4, scope="Scan")
    for task in range(4):
        log.start(0, task, "12"[task % 2], 1020 + task)
    for task in range(4):
        log.end(
            0, task, "12"[task % 2], 1020 + task, 2000 + task, run=900, deserialise=40, written=1000, write=50
        )
    log.stage(0, 1010, 4, scope="Scan", done=2003).stage(1, 2010, 4, parents=[0], scope="Exchange")
    for task in range(4, 8):
        log.start(1, task, "12"[task % 2], 2020 + task)
    for task in (4, 5, 6):
        log.end(1, task, "12"[task % 2], 2020 + task, 3000 + task, run=950, fetch=30, remote=500)
    log.end(1, 7, "2", 2027, 8000, run=5900, fetch=100, remote=500, gc=300, serialise=20)
    log.stage(1, 2010, 4, parents=[0], scope="Exchange", done=8000).job_end(0, 8010)
    return log.application_end(8500)


def many_jobs(count):
    log = LogBuilder().executor("1", 100)
    for job in range(count):
        at = 1000 * (job + 1)
        log.job(job, at, [job]).stage(job, at + 10, 2)
        for task in (2 * job, 2 * job + 1):
            log.start(job, task, "1", at + 20)
        for task in (2 * job, 2 * job + 1):
            log.end(job, task, "1", at + 20, at + 900, run=850)
        log.stage(job, at + 10, 2, done=at + 910).job_end(job, at + 920)
    return log.application_end(1000 * (count + 2))


def streaming_job(count, phases=None, **told):
    """Batches of 2 s, one every 4 s; `phases` has other lengths for batches, `told` is told of all."""
    log = LogBuilder().executor("1", 100)
    for batch in range(count):
        at, given = 1000 + 4000 * batch, (phases or {}).get(batch, {})
        properties = {"sql.streaming.queryId": "abcdefgh-1", "streaming.sql.batchId": str(batch)}
        lengths = {"latestOffset": 100, "walCommit": 200, "queryPlanning": 300, "addBatch": 1200,
                   "commitOffsets": 150, "triggerExecution": 2000} | given  # fmt: skip
        begun = at + sum(lengths[name] for name in ("latestOffset", "walCommit", "queryPlanning"))
        log.job(batch, begun + 100, [batch], properties).stage(batch, begun + 105, 1)
        log.start(batch, batch, "1", begun + 110).end(batch, batch, "1", begun + 110, begun + 900, run=700)
        log.stage(batch, begun + 105, 1, done=begun + 905).job_end(batch, begun + 910)
        log.progress(batch, at, lengths, **told)
    return log.application_end(1000 + 4000 * count)
