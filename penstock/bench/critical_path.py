"""Events a second through the kernels on one core, and through Spark."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.spark_cluster import ClusterShape, start_cluster, stop_cluster
from penstock.diagnose.activity_graph import activity_graph
from penstock.diagnose.generated import TraceShape, generated_trace
from penstock.diagnose.memory import BYTES_PER_EVENT, available_bytes
from penstock.diagnose.participation import participation, windows
from penstock.diagnose.spark_pipeline import path_frame, trace_summaries
from penstock.diagnose.trace import Trace
from penstock.diagnose.trace_files import write_trace

EVENTS_PER_SECOND = 30_000
MOST_EVENTS = 50_000_000
PUBLISHED = {
    "events_per_s_32_cores": 1_200_000,
    "latency_s_of_1_s_window": 0.06,
    "latency_s_of_256_s_window": 24.84,
}


def run(quick: bool, progress: Callable[[str], None]) -> BenchReport:
    """Windows of growing length through the kernels, then many traces through Spark."""
    rows, left_out = kernel_rows(quick, progress)
    kernel = max(row["events"] / row["latency_s"] for row in rows if row["events"] >= 100_000)
    through_spark, events = _through_spark(8 if quick else 50, progress)
    worst = max(row["latency_s"] / row["window_s"] for row in rows)
    summary = {
        "kernel_events_per_s": kernel,
        "kernel_events_per_s_longest": rows[-1]["events"] / rows[-1]["latency_s"],
        "spark_events_per_s": through_spark,
        "spark_events": float(events),
        "growth_exponent": _exponent(rows),
        "worst_latency_of_window": worst,
    }
    targets = [
        Target("kernel, events a second on one core", ">= 10000000", summary["kernel_events_per_s_longest"]),
        Target("through Spark, events a second on two cores", ">= 2400000", through_spark),
        Target("latency of a window over its length", "<= 0.1", worst),
        Target("growth of time with events (1 is linear)", "<= 1.15", summary["growth_exponent"]),
    ]
    notes = [
        "Latency is from ordered event arrays to participation, the best of three runs in one process.",
        "Spark's rate leaves out the start of the cluster and of its Python workers.",
        *left_out,
    ]
    return BenchReport("critical-path", summary, rows, targets, PUBLISHED, notes)


def kernel_rows(quick: bool, progress: Callable[[str], None]) -> tuple[list[Row], list[str]]:
    """Windows of growing length through the kernels on one core, and notes on what was left out."""
    lengths, left_out = _lengths(quick, available_bytes())
    # the first pass compiles the kernels or loads them
    _latency(generated_trace(TraceShape(1000)))
    return [_window(seconds, progress) for seconds in lengths], left_out


def _lengths(quick: bool, available: int) -> tuple[list[int], list[str]]:
    """Seconds of the windows: those of tables 3.3 and 3.4, and one of 50 million events where it fits."""
    lengths = [1, 2, 4, 8, 16, 32] if quick else [1, 2, 4, 8, 16, 32, 64, 128, 256]
    if quick:
        return lengths, ["The quick run has no window of more than 32 s."]
    if available < MOST_EVENTS * BYTES_PER_EVENT:
        return lengths, [f"{available >> 20} MiB are free: too little for a window of 50 million events."]
    return [*lengths, MOST_EVENTS // EVENTS_PER_SECOND], []


def _window(seconds: int, progress: Callable[[str], None]) -> Row:
    progress(f"window of {seconds} s")
    trace = generated_trace(TraceShape(seconds * EVENTS_PER_SECOND))
    latency, paths = min(_latency(trace) for _ in range(3))
    return {
        "case": f"{seconds} s",
        "window_s": seconds,
        "events": len(trace),
        "latency_s": latency,
        "events_per_s": len(trace) / latency,
        "paths_log10": paths,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _latency(trace: Trace) -> tuple[float, float]:
    begun = time.perf_counter()
    graph = activity_graph(trace)
    found = participation(graph, next(iter(windows(graph))))
    return time.perf_counter() - begun, found.paths_log10


def _exponent(rows: list[Row]) -> float:
    """The slope of time over events, both in logarithms; the smallest windows are all fixed cost."""
    large = [row for row in rows if row["events"] >= 100_000]
    events, seconds = np.log([r["events"] for r in large]), np.log([r["latency_s"] for r in large])
    return float(np.polyfit(events, seconds, 1)[0])


def _through_spark(files: int, progress: Callable[[str], None]) -> tuple[float, int]:
    """Parquet in, summaries out, in windows of 8 s; a first pass warms the Python workers up."""
    with tempfile.TemporaryDirectory() as folder:
        paths, events = [], 0
        for number in range(files):
            progress(f"writing trace {number + 1} of {files}")
            trace = generated_trace(TraceShape(1_000_000, seed=number))
            path = Path(folder) / f"application-{number}.parquet"
            write_trace(trace, path)
            paths.append(str(path))
            events += len(trace)
        progress("starting Spark")
        spark = start_cluster(
            ClusterShape(executors=1, cores=2, executor_memory_mb=1024, name="critical-path")
        )
        try:
            trace_summaries(path_frame(spark, paths[:2] * 2), 8.0).count()
            begun = time.perf_counter()
            rows = trace_summaries(path_frame(spark, paths), 8.0).count()
            seconds = time.perf_counter() - begun
        finally:
            stop_cluster()
        progress(f"{rows} summary rows in {seconds:.1f} s")
        return events / seconds, events
