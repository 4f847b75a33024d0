"""From a large event log to the report, in megabytes and tasks a second."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import orjson

from penstock.bench.report import BenchReport, Target
from penstock.diagnose.density import Span
from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.event_log import read_log
from penstock.diagnose.log_files import find_logs

EXECUTORS, CORES, TASKS_PER_STAGE = 25, 4, 1000
BASE = 1_700_000_000_000
# A task's end takes about 10 kB in a log of Spark SQL, most of it accumulators.
ACCUMULATORS = 75


def run(quick: bool, progress: Callable[[str], None]) -> BenchReport:
    """Writes a log of 100,000 tasks (10,000 when quick) and takes the time to diagnose it."""
    tasks = 10_000 if quick else 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "app-1"
        progress(f"writing a log of {tasks} tasks")
        with path.open("wb") as stream:
            write_log(stream, tasks)
        size = path.stat().st_size
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        progress(f"diagnosing {size >> 20} MiB")
        begun = time.perf_counter()
        log = read_log(find_logs(path)[0].lines())
        read = time.perf_counter() - begun
        found = diagnose_log(log, Span(window_us=60_000_000))
        seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row = {
        "case": f"{tasks} tasks",
        "bytes": size,
        "seconds": seconds,
        "read_seconds": read,
        "windows": len(found.windows),
        "events": found.whole.events,
        "peak_rss_bytes": peak,
        "rss_growth_bytes": peak - before,
    }
    scaled = seconds * 100_000 / tasks
    summary = {
        "mb_per_s": size / 1e6 / seconds,
        "tasks_per_s": tasks / seconds,
        "seconds_per_100000_tasks": scaled,
        "rss_growth_of_log": (peak - before) / size,
    }
    targets = [
        Target("seconds for 100,000 tasks", "< 60", scaled),
        Target("memory grown, as a share of the log's size", "< 1", summary["rss_growth_of_log"]),
    ]
    notes = ["The quick run's time is scaled to 100,000 tasks."] if quick else []
    return BenchReport("event-log", summary, [row], targets, {}, notes)


def write_log(stream: BinaryIO, tasks: int) -> None:
    """Writes the log of an application with full slots, one stage after another."""
    write = _writer(stream)
    write("SparkListenerLogStart", {"Spark Version": "4.3.0"})
    write("SparkListenerApplicationStart", {"App Name": "large", "App ID": "app-1", "Timestamp": BASE})
    for executor in range(EXECUTORS):
        fields = {
            "Timestamp": BASE + 1000,
            "Executor ID": str(executor),
            "Executor Info": {"Total Cores": CORES},
        }
        write("SparkListenerExecutorAdded", fields)
    at = BASE + 2000
    for stage in range(tasks // TASKS_PER_STAGE):
        at = _write_stage(write, stage, at)
    write("SparkListenerApplicationEnd", {"Timestamp": at})


def _writer(stream: BinaryIO) -> Callable[[str, dict[str, object]], None]:
    def write(event: str, fields: dict[str, object]) -> None:
        stream.write(orjson.dumps({"Event": event, **fields}) + b"\n")

    return write


def _write_stage(write: Callable[[str, dict[str, object]], None], stage: int, at: int) -> int:
    """One job of one stage; gives the millisecond at which it ends."""
    information = {
        "Stage ID": stage,
        "Number of Tasks": TASKS_PER_STAGE,
        "Submission Time": at + 5,
        "Stage Name": "count",
    }
    write("SparkListenerJobStart", {"Job ID": stage, "Submission Time": at, "Stage IDs": [stage]})
    write("SparkListenerStageSubmitted", {"Stage Info": information})
    slots = EXECUTORS * CORES
    free = [at + 10 + slot for slot in range(slots)]
    for number in range(TASKS_PER_STAGE):
        slot = number % slots
        length = 200 + (number * 7919) % 300
        _write_task(write, stage * TASKS_PER_STAGE + number, stage, slot // CORES, (free[slot], length))
        free[slot] += length + 3
    end = max(free)
    write("SparkListenerStageCompleted", {"Stage Info": {**information, "Completion Time": end}})
    write("SparkListenerJobEnd", {"Job ID": stage, "Completion Time": end + 2})
    return end + 50


def _write_task(
    write: Callable[[str, dict[str, object]], None],
    task: int,
    stage: int,
    executor: int,
    when: tuple[int, int],
) -> None:
    launch, length = when
    information: dict[str, object] = {"Task ID": task, "Index": task % TASKS_PER_STAGE, "Launch Time": launch,
                                      "Executor ID": str(executor), "Speculative": False}  # fmt: skip
    write("SparkListenerTaskStart", {"Stage ID": stage, "Stage Attempt ID": 0, "Task Info": information})
    accumulables = [
        {"ID": number, "Name": f"internal metric of some length {number}", "Update": str(number * 131),
         "Value": str(number * 1310), "Internal": True, "Count Failed Values": True}
        for number in range(ACCUMULATORS)
    ]  # fmt: skip
    ended = information | {"Finish Time": launch + length, "Accumulables": accumulables}
    metrics = {
        "Executor Deserialize Time": 10,
        "Executor Run Time": length - 30,
        "JVM GC Time": 8,
        "Result Serialization Time": 1,
        "Shuffle Read Metrics": {"Fetch Wait Time": 5},
        "Shuffle Write Metrics": {"Shuffle Write Time": 4_000_000, "Shuffle Bytes Written": 1000},
    }
    fields = {"Stage ID": stage, "Stage Attempt ID": 0, "Task End Reason": {"Reason": "Success"},
              "Task Info": ended, "Task Metrics": metrics}  # fmt: skip
    write("SparkListenerTaskEnd", fields)
