"""Builds event logs in which things happen: executors come and go, tasks fail, copies run, data spills."""

from __future__ import annotations

import json

from penstock.diagnose.log.reader import read_log
from tests.diagnose.logs import BASE, LogBuilder


class EventfulLog(LogBuilder):
    """A log of whole tasks; numbers of tasks rise by themselves, times are milliseconds after `BASE`."""

    def named(self, name):
        self.lines = [
            line.replace(b'"App Name":"demo"', f'"App Name":"{name}"'.encode()) for line in self.lines
        ]
        return self

    def properties(self, **given):
        """Set Spark's properties; `__` in a name stands for a dot."""
        spark = {f"spark.{name.replace('__', '.')}": str(value) for name, value in given.items()}
        return self.add(
            "SparkListenerEnvironmentUpdate", **{"Spark Properties": spark, "System Properties": {}}
        )

    def on_host(self, name, host, cores=2):
        information = {"Total Cores": cores, "Host": host}
        fields = {"Timestamp": BASE, "Executor ID": name, "Executor Info": information}
        return self.add("SparkListenerExecutorAdded", **fields)

    def lost(self, executor, at, reason="Container killed"):
        fields = {"Timestamp": BASE + at, "Executor ID": executor, "Removed Reason": reason}
        return self.add("SparkListenerExecutorRemoved", **fields)

    def job_failed(self, job, at, message):
        result = {"Result": "JobFailed", "Exception": {"Message": message, "Stack Trace": []}}
        fields = {"Job ID": job, "Completion Time": BASE + at, "Job Result": result}
        return self.add("SparkListenerJobEnd", **fields)

    def attempt(self, stage, attempt, at, tasks, done=None, failure=None, parents=(), scopes=("Scan",)):
        """A stage attempt that is submitted, or with `done` completed, or with `failure` failed."""
        information = {
            "Stage ID": stage, "Stage Attempt ID": attempt, "Stage Name": f"count at job.py:{stage}",
            "Number of Tasks": tasks, "Parent IDs": list(parents), "Submission Time": BASE + at,
            "RDD Info": [
                {"RDD ID": 10 * stage + place, "Scope": json.dumps({"id": str(place), "name": scope})}
                for place, scope in enumerate(scopes)
            ],
        }  # fmt: skip
        if done is None:
            return self.add("SparkListenerStageSubmitted", **{"Stage Info": information})
        information["Completion Time"] = BASE + done
        if failure is not None:
            information["Failure Reason"] = failure
        return self.add("SparkListenerStageCompleted", **{"Stage Info": information})

    def task(
        self, stage, executor, launch, finish, *, partition=None, attempt=0, reason=None, speculative=False,
        killed=False, **lengths
    ):  # fmt: skip
        """A task from its launch to its end; `reason` is Spark's task end reason, by default success."""
        number, self.tasks = self.tasks, self.tasks + 1
        information = {
            "Task ID": number, "Index": number if partition is None else partition, "Executor ID": executor,
            "Launch Time": BASE + launch, "Speculative": speculative,
        }  # fmt: skip
        fields = {"Stage ID": stage, "Stage Attempt ID": attempt}
        self.add("SparkListenerTaskStart", **fields, **{"Task Info": information})
        ended = {
            "Finish Time": BASE + finish,
            "Failed": reason is not None and not killed,
            "Killed": killed,
        }
        fields |= {"Task End Reason": reason or {"Reason": "Success"}, "Task Info": information | ended}
        if reason is None or killed:
            fields["Task Metrics"] = make_metrics(finish - launch, lengths)
        return self.add("SparkListenerTaskEnd", **fields)

    def sql(self, execution, at, plan, description="save at job.py:1"):
        fields = {"executionId": execution, "time": BASE + at, "description": description}
        return self.add("org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart", **fields,
                        sparkPlanInfo=plan)  # fmt: skip

    def sql_end(self, execution, at):
        name = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd"
        return self.add(name, executionId=execution, time=BASE + at)

    def read(self):
        return read_log(self.lines)


def make_metrics(length, lengths):
    return {
        "Executor Deserialize Time": lengths.get("deserialise", 0),
        "Executor Run Time": lengths.get("run", length),
        "Executor CPU Time": lengths.get("cpu", 0) * 1_000_000,
        "JVM GC Time": lengths.get("gc", 0),
        "Peak Execution Memory": lengths.get("peak", 0),
        "Memory Bytes Spilled": lengths.get("spilled", 0),
        "Disk Bytes Spilled": lengths.get("spilled_to_disk", 0),
        "Input Metrics": {"Bytes Read": lengths.get("input", 0), "Records Read": lengths.get("scanned", 0)},
        "Shuffle Read Metrics": {
            "Fetch Wait Time": lengths.get("fetch", 0),
            "Remote Bytes Read": lengths.get("remote", 0),
            "Local Bytes Read": lengths.get("local", 0),
            "Total Records Read": lengths.get("shuffled", 0),
        },
        "Shuffle Write Metrics": {
            "Shuffle Write Time": lengths.get("write", 0) * 1_000_000,
            "Shuffle Bytes Written": lengths.get("written", 0),
        },
    }


def plan(name, *children, text=None):
    """A node of a SQL plan as Spark logs it."""
    return {"nodeName": name, "simpleString": text or name, "children": list(children), "metrics": []}


def waves(log, stage, executors, tasks, at, length):
    """Add equal tasks in waves, one on each of these executors at a time; return when they are done."""
    for number in range(tasks):
        launch = at + length * (number // len(executors))
        log.task(stage, executors[number % len(executors)], launch, launch + length)
    return at + length * -(-tasks // len(executors))


def elastic_job(executors=8, tasks=64, length=1000):
    """One job of equal tasks on executors of one core; all but the first are removed behind it."""
    names = [str(number) for number in range(1, executors + 1)]
    log = EventfulLog()
    for name in names:
        log.executor(name, 500, cores=1)
    log.job(0, 1000, [0]).attempt(0, 0, 1000, tasks)
    end = waves(log, 0, names, tasks, 1000, length)
    log.attempt(0, 0, 1000, tasks, done=end).job_end(0, end)
    for name in names[1:]:
        log.lost(name, end + 100, "Executor killed by driver.")
    return log.application_end(end + 200)
