"""Speed of diagnosis: traces through the kernels and through Spark, and a large event log to its answer."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import orjson

from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.log.files import find_logs
from penstock.diagnose.log.ranges import count_processes
from penstock.diagnose.log.reader import read_application
from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.path.participation import cut_windows, measure_participation
from penstock.diagnose.path.spans import BYTES_PER_EVENT, Span, find_free_memory
from penstock.diagnose.trace.events import Activity, Kind, Times, Trace, Work, write_trace
from penstock_lab.experiments.measurement import (
    Extent,
    Measurement,
    Progress,
    Row,
    fit_growth,
    read_peak_memory,
)

EVENTS_PER_SECOND = 30_000
MOST_EVENTS = 50_000_000
LARGE_TRACE = 100_000
"""Events of a trace; smaller ones are all fixed cost."""
WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Seconds, of tables 3.3 and 3.4."""
_TYPES = (Activity.PROCESSING, Activity.SERIALIZATION, Activity.BUFFER, Activity.SCHEDULING)
_OPERATORS = ("source", "flatmap", "count", "sink")
EXECUTORS, CORES, TASKS_PER_STAGE = 25, 4, 1000
BASE = 1_700_000_000_000
ACCUMULATORS = 75
"""A task's end takes about 10 kB in a log of Spark SQL, most of it accumulators."""


@dataclass(frozen=True, slots=True)
class TraceShape:
    """The shape of a generated trace; the defaults are the densest trace of section 3.7.1."""

    events: int
    workers: int = 48
    events_per_second: int = EVENTS_PER_SECOND
    message_share: float = 0.4
    seed: int = 0


def generate_trace(shape: TraceShape) -> Trace:
    """Make a trace: activities fill nine tenths of a worker's time, messages take up to 2 ms."""
    random = np.random.default_rng(shape.seed)
    messages = int(shape.events * shape.message_share / 2)
    activities = shape.events // 2 - messages
    span = shape.events * 1_000_000 // shape.events_per_second
    worker, start, end = _draw_activities(random, shape, activities, span)
    sent = random.integers(0, max(1, span - 2_000), messages)
    sender = random.integers(0, shape.workers, messages)
    receiver = (sender + random.integers(1, shape.workers, messages)) % shape.workers
    received = sent + random.integers(50, 2_000, messages)
    kind = np.repeat(
        [Kind.START, Kind.END, Kind.SEND, Kind.RECEIVE], [len(start), len(end), messages, messages]
    )
    number, chosen = np.arange(messages), random.integers(0, 4, len(start))
    types = np.array(_TYPES)[chosen]
    none, message = np.full(len(start), -1), np.full(2 * messages, Activity.DATA_MESSAGE)
    zeros = np.zeros(2 * len(start), dtype=np.int64)
    return Trace(
        time_us=np.concatenate([start, end, sent, received]),
        worker=np.concatenate([worker, worker, sender, receiver]).astype(np.int32),
        kind=kind.astype(np.uint8),
        activity=np.concatenate([types, types, message]).astype(np.uint8),
        correlation=np.concatenate([zeros, number, number]),
        remote=np.concatenate([none, none, receiver, sender]).astype(np.int32),
        work=np.concatenate([chosen, chosen, np.zeros(2 * messages)]).astype(np.int32),
        workers=tuple(f"worker {place}" for place in range(shape.workers)),
        works=tuple(Work(name) for name in _OPERATORS),
    ).in_time_order()


def shuffle_events(trace: Trace) -> Trace:
    """Return the events in no order, those of one instant together: whoever analyses them must sort first."""
    _, instant = np.unique(trace.time_us, return_inverse=True)
    places = np.random.default_rng(0).permutation(len(trace))[instant]
    return trace.take(np.argsort(places, kind="stable"))


def _draw_activities(
    random: np.random.Generator, shape: TraceShape, count: int, span: int
) -> tuple[Times, Times, Times]:
    """Draw workers, starts and ends of activities that never overlap on a worker."""
    each = max(1, count // shape.workers)
    starts = np.sort(random.integers(0, span, (shape.workers, each)), axis=1)
    following = np.concatenate([starts[:, 1:], np.full((shape.workers, 1), span)], axis=1)
    ends = starts + (following - starts) * 9 // 10
    workers = np.repeat(np.arange(shape.workers), each)
    longer = (ends > starts).ravel()
    return workers[longer], starts.ravel()[longer], ends.ravel()[longer]


def run_critical_path(extent: Extent, progress: Progress) -> Measurement:
    """Send windows of growing length through the kernels; a benchmark also sends traces through Spark."""
    lengths, left_out = _choose_lengths(extent.quick, find_free_memory())
    # the first pass compiles the kernels or loads them
    _time_trace(shuffle_events(generate_trace(TraceShape(1000))))
    rows = [_time_window(seconds, progress) for seconds in lengths]
    large = {row["events"]: row["latency_s"] for row in rows if row["events"] >= LARGE_TRACE}
    summary = {
        "kernel_events_per_s": max(events / seconds for events, seconds in large.items()),
        "kernel_events_per_s_longest": rows[-1]["events_per_s"],
        "growth_exponent": fit_growth(large),
        "worst_latency_of_window": max(row["latency_s"] / row["window_s"] for row in rows),
    }
    notes = [
        "Latency is from event arrays in no order to participation, the best of three runs in one process; "
        "sort_s is the part of it that sorts them by time."
    ]
    if not extent.report:
        summary |= _time_spark(8 if extent.quick else 50, progress)
        notes.append("Spark's rate leaves out the start of the cluster and of its Python workers.")
    return Measurement(rows, summary, [*notes, *left_out])


def _choose_lengths(quick: bool, available: int) -> tuple[list[int], list[str]]:
    """Choose the windows in seconds: those of the tables, and one of 50 million events if it fits."""
    if quick:
        return [*WINDOWS[:6]], [f"The quick run has no window of more than {WINDOWS[5]} s."]
    if available < MOST_EVENTS * BYTES_PER_EVENT:
        return [*WINDOWS], [f"{available >> 20} MiB are free: too little for a window of 50 million events."]
    return [*WINDOWS, MOST_EVENTS // EVENTS_PER_SECOND], []


def _time_window(seconds: int, progress: Progress) -> Row:
    progress(f"window of {seconds} s")
    trace = shuffle_events(generate_trace(TraceShape(seconds * EVENTS_PER_SECOND)))
    latency, sort, paths = min(_time_trace(trace) for _ in range(3))
    return {
        "case": f"{seconds} s",
        "window_s": seconds,
        "events": len(trace),
        "latency_s": latency,
        "sort_s": sort,
        "events_per_s": len(trace) / latency,
        "paths_log10": paths,
        "peak_rss_bytes": read_peak_memory(),
    }


def _time_trace(trace: Trace) -> tuple[float, float, float]:
    """Return the seconds to participation, the part of them for the sort, and log10 of the paths."""
    begun = time.perf_counter()
    ordered = trace.in_time_order()
    in_order = time.perf_counter()
    graph = build_graph(ordered)
    found = measure_participation(graph, next(iter(cut_windows(graph))))
    return time.perf_counter() - begun, in_order - begun, found.paths_log10


def _time_spark(files: int, progress: Progress) -> dict[str, float]:
    """Time Parquet in, summaries out, in windows of 8 s; a first pass warms the Python workers up."""
    from penstock.diagnose.spark_pipeline import path_frame, trace_summaries
    from penstock_lab.ground.spark_cluster import ClusterShape, cluster

    with tempfile.TemporaryDirectory() as folder:
        paths, events = [], 0
        for number in range(files):
            progress(f"writing trace {number + 1} of {files}")
            trace = shuffle_events(generate_trace(TraceShape(1_000_000, seed=number)))
            path = Path(folder) / f"application-{number}.parquet"
            write_trace(trace, path)
            paths.append(str(path))
            events += len(trace)
        progress("starting Spark")
        shape = ClusterShape(executors=1, cores=2, executor_memory_mb=1024, name="critical-path")
        with cluster(shape) as spark:
            trace_summaries(path_frame(spark, paths[:2] * 2), 8.0).count()
            begun = time.perf_counter()
            rows = trace_summaries(path_frame(spark, paths), 8.0).count()
            seconds = time.perf_counter() - begun
        progress(f"{rows} summary rows in {seconds:.1f} s")
        return {"spark_events_per_s": events / seconds, "spark_events": float(events)}


def run_event_log(extent: Extent, progress: Progress) -> Measurement:
    """Write a log of 100,000 tasks (10,000 when quick) and time its diagnosis."""
    tasks = 10_000 if extent.quick else 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "app-1"
        progress(f"writing a log of {tasks} tasks")
        with path.open("wb") as stream:
            write_log(stream, tasks)
        size = path.stat().st_size
        before = read_peak_memory()
        progress(f"diagnosing {size >> 20} MiB")
        begun = time.perf_counter()
        log = read_application(find_logs(path)[0], count_processes())
        read = time.perf_counter() - begun
        found = diagnose_log(log, Span(window_us=60_000_000))
        seconds = time.perf_counter() - begun
    peak = read_peak_memory()
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
    summary = {
        "mb_per_s": size / 1e6 / seconds,
        "tasks_per_s": tasks / seconds,
        "seconds_per_100000_tasks": seconds * 100_000 / tasks,
        "rss_growth_of_log": (peak - before) / size,
    }
    notes = ["The quick run's time is scaled to 100,000 tasks."] if extent.quick else []
    return Measurement([row], summary, notes)


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
