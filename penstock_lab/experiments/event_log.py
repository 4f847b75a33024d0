"""A large event log, and what `penstock diagnose` takes for it: seconds and memory, of all its processes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import orjson
import psutil

from penstock.errors import ActionFailed
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row

EXECUTORS, CORES, TASKS_PER_STAGE = 25, 4, 1000
BASE = 1_700_000_000_000
ACCUMULATORS = 45
"""A task takes about 6.3 kB in a log of Spark SQL, most of it accumulators."""
TASKS, QUICK_TASKS = 126_000, 16_000
LOOK_EVERY_SECONDS = 0.02
_COMMAND = "from penstock.cli import main; main()"


def run_event_log(extent: Extent, progress: Progress) -> Measurement:
    """Time the command on a log of 126,000 tasks (16,000 when quick), and on one of half the size."""
    tasks = QUICK_TASKS if extent.quick else TASKS
    with tempfile.TemporaryDirectory() as folder:
        # the first pass compiles the kernels or loads them
        _time_command(_write_file(Path(folder) / "warm", TASKS_PER_STAGE, progress))
        rows = [
            _measure_log(_write_file(Path(folder) / f"app-{count}", count, progress), count, progress)
            for count in (tasks // 2, tasks)
        ]
    half, whole = rows
    summary = {
        "mb_per_s": whole["bytes"] / 1e6 / whole["seconds"],
        "tasks_per_s": tasks / whole["seconds"],
        "seconds_per_126000_tasks": whole["seconds"] * TASKS / tasks,
        "peak_memory_bytes": whole["peak_memory_bytes"],
        "memory_of_log": whole["peak_memory_bytes"] / whole["bytes"],
        "seconds_per_mb_over_half": whole["seconds_per_mb"] / half["seconds_per_mb"],
    }
    notes = [
        "Seconds are those of the whole command, from its start to its answer as JSON; memory is what its "
        "processes hold at the same time, shared pages divided among them.",
    ]
    if extent.quick:
        notes.append(f"The quick run's time is scaled to {TASKS} tasks; its memory is that of a small log.")
    return Measurement(rows, summary, notes)


def _write_file(path: Path, tasks: int, progress: Progress) -> Path:
    progress(f"writing a log of {tasks} tasks")
    with path.open("wb") as stream:
        write_log(stream, tasks)
    return path


def _measure_log(path: Path, tasks: int, progress: Progress) -> Row:
    size = path.stat().st_size
    progress(f"diagnosing {size >> 20} MiB")
    seconds, peak, processes = _time_command(path)
    return {
        "case": f"{tasks} tasks",
        "bytes": size,
        "seconds": seconds,
        "seconds_per_mb": seconds / (size / 1e6),
        "peak_memory_bytes": peak,
        "processes": processes,
    }


def _time_command(path: Path) -> tuple[float, int, int]:
    """Return the seconds of `penstock diagnose`, the most memory it held, and its most processes at once."""
    begun, peak, most = time.perf_counter(), 0, 0
    command = [sys.executable, "-c", _COMMAND, "diagnose", str(path), "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        parent = psutil.Process(running.pid)
        while running.poll() is None:
            held = _read_memory(parent)
            peak, most = max(peak, sum(held)), max(most, len(held))
            time.sleep(LOOK_EVERY_SECONDS)
        seconds = time.perf_counter() - begun
        said = running.stderr.read().decode(errors="replace") if running.stderr else ""
    if running.returncode:
        raise ActionFailed(f"penstock diagnose ended with {running.returncode}: {said.strip()[-500:]}")
    return seconds, peak, most


def _read_memory(parent: psutil.Process) -> list[int]:
    """Return the bytes of a process and of each of its children, shared pages divided among them."""
    held = []
    try:
        family = [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return []
    for process in family:
        try:
            held.append(int(process.memory_full_info().pss))
        except (psutil.Error, AttributeError):
            continue  # it has ended
    return held


def write_log(stream: BinaryIO, tasks: int) -> None:
    """Write the log of an application with full slots, one stage after another."""

    def write(event: str, fields: Row) -> None:
        stream.write(orjson.dumps({"Event": event, **fields}) + b"\n")

    write("SparkListenerLogStart", {"Spark Version": "4.3.0"})
    write("SparkListenerApplicationStart", {"App Name": "large", "App ID": "app-1", "Timestamp": BASE})
    for executor in range(EXECUTORS):
        fields = {"Executor ID": str(executor), "Executor Info": {"Total Cores": CORES}}
        write("SparkListenerExecutorAdded", {"Timestamp": BASE + 1000, **fields})
    at = BASE + 2000
    for stage in range(tasks // TASKS_PER_STAGE):
        at = _write_stage(write, stage, at)
    write("SparkListenerApplicationEnd", {"Timestamp": at})


def _write_stage(write: Callable[[str, Row], None], stage: int, at: int) -> int:
    """Write one job of one stage; return the millisecond at which it ends."""
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
        task: Row = {"Task ID": stage * TASKS_PER_STAGE + number, "Index": number, "Launch Time": free[slot]}
        _write_task(write, stage, {**task, "Executor ID": str(slot // CORES), "Speculative": False}, length)
        free[slot] += length + 3
    end = max(free)
    write("SparkListenerStageCompleted", {"Stage Info": {**information, "Completion Time": end}})
    write("SparkListenerJobEnd", {"Job ID": stage, "Completion Time": end + 2})
    return end + 50


def _write_task(write: Callable[[str, Row], None], stage: int, task: Row, length: int) -> None:
    of_stage: Row = {"Stage ID": stage, "Stage Attempt ID": 0}
    write("SparkListenerTaskStart", {**of_stage, "Task Info": task})
    accumulables = [
        {"ID": number, "Name": f"internal metric of some length {number}", "Update": str(number * 131),
         "Value": str(number * 1310), "Internal": True, "Count Failed Values": True}
        for number in range(ACCUMULATORS)
    ]  # fmt: skip
    ended = task | {"Finish Time": task["Launch Time"] + length, "Accumulables": accumulables}
    metrics = {
        "Executor Deserialize Time": 10,
        "Executor Run Time": length - 30,
        "JVM GC Time": 8,
        "Result Serialization Time": 1,
        "Shuffle Read Metrics": {"Fetch Wait Time": 5},
        "Shuffle Write Metrics": {"Shuffle Write Time": 4_000_000, "Shuffle Bytes Written": 1000},
    }
    reason = {"Task End Reason": {"Reason": "Success"}}
    write("SparkListenerTaskEnd", {**of_stage, **reason, "Task Info": ended, "Task Metrics": metrics})
