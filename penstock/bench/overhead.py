"""What the autopilot costs: throughput and batch time of one application, attached against not attached.

The query is not paced and its source never runs dry, so that batches follow each other at once and use
all the processor time there is: what the autopilot takes is missing in them. Windows alternate in the
order attached, not, not, attached, so that a drift of the machine falls on both sides alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from penstock.attach import attach
from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.spark_cluster import ClusterShape, cluster, scratch_directory
from penstock.bench.spark_experiment import DAYS_AGO, batches_of
from penstock.bench.traces import BatchSeen
from penstock.errors import ActionFailed
from penstock.workloads.word_count import WordCount, start_word_count

SHAPE = ClusterShape(executors=2, cores=1, name="penstock bench overhead", log_level="OFF")
RECORDS_PER_BATCH = 20_000
TASKS = 2
ORDER = ("attached", "not attached", "not attached", "attached")

PUBLISHED = {"ds2_flink_latency_ratio": 1.13, "ds2_timely_latency_ratio": 1.20}


@dataclass(frozen=True, slots=True)
class Length:
    """How long the benchmark runs; a window holds two policy intervals."""

    warm_up_seconds: float = 45.0
    window_seconds: float = 21.0
    blocks: int = 5


@dataclass(frozen=True, slots=True)
class Window:
    """What one window showed."""

    system: str
    records_per_second: float
    batch_seconds: float
    batches: int


def run(quick: bool, progress: Callable[[str], None]) -> BenchReport:
    """Alternate windows in one application; quick runs one block of short ones."""
    length = Length(25.0, 12.0, 1) if quick else Length()
    with cluster(SHAPE) as spark, scratch_directory() as scratch:
        query = start_word_count(spark, _workload(), str(scratch / "checkpoint"), trigger_seconds=0)
        progress(f"warming up for {length.warm_up_seconds:g} s")
        time.sleep(length.warm_up_seconds)
        windows = list(_windows(spark, query, length, scratch / "journal.db", progress))
        query.stop()
    return report(windows)


def report(windows: list[Window]) -> BenchReport:
    """Ratios per block of four windows, their median, and how far they spread."""
    blocks = [windows[at : at + len(ORDER)] for at in range(0, len(windows), len(ORDER))]
    throughput = [_ratio(block, lambda window: window.records_per_second) for block in blocks]
    latency = [_ratio(block, lambda window: window.batch_seconds) for block in blocks]
    summary = {
        "throughput_ratio": median(throughput),
        "throughput_ratio_low": min(throughput),
        "throughput_ratio_high": max(throughput),
        "latency_ratio": median(latency),
        "latency_ratio_low": min(latency),
        "latency_ratio_high": max(latency),
        "window_spread": _spread_of_same(windows),
        "blocks": len(blocks),
    }
    targets = [
        Target("throughput, attached against not attached", ">= 0.99", summary["throughput_ratio"]),
        Target("batch time, attached against not attached", "<= 1.01", summary["latency_ratio"]),
    ]
    rows = [_row(number, window) for number, window in enumerate(windows)]
    notes = [
        "a ratio is taken in each block of four windows (attached, not, not, attached); the summary has "
        "the median, the lowest and the highest of them",
        "window_spread is the standard deviation of windows of the same kind, relative to their mean: ratios "
        "finer than that over the square root of the windows are noise",
        "published figures are the papers' instrumented engines, which had no metrics of their own to read",
    ]
    return BenchReport("overhead", summary, rows, targets, PUBLISHED, notes)


def window_of(system: str, batches: list[BatchSeen], start: float, end: float) -> Window:
    """Throughput and batch time of the batches that ran wholly in the window."""
    whole = [batch for batch in batches if batch.start >= start and batch.end <= end]
    if len(whole) < 2:
        raise ActionFailed(f"only {len(whole)} batches ran in a window of {end - start:.0f} s")
    records = sum(batch.records for batch in whole)
    span = whole[-1].end - whole[0].start
    return Window(system, records / span, median(batch.seconds for batch in whole), len(whole))


def _windows(
    spark: Any, query: Any, length: Length, journal: Path, progress: Callable[[str], None]
) -> Iterator[Window]:
    for number in range(length.blocks * len(ORDER)):
        system = ORDER[number % len(ORDER)]
        with _attached(spark, journal) if system == "attached" else _alone():
            start = time.time()
            time.sleep(length.window_seconds)
            window = window_of(system, batches_of(query), start, time.time())
        progress(f"{system}: {window.records_per_second:,.0f} records/s, batch {window.batch_seconds:.3f} s")
        yield window


@contextmanager
def _attached(spark: Any, journal: Path) -> Iterator[None]:
    """Attached as a user would be, with an actuator, but with no other size to go to."""
    size = {"min_executors": SHAPE.executors, "max_executors": SHAPE.executors}
    autopilot = attach(spark, settings={**size, "journal": str(journal)})
    try:
        yield
    finally:
        autopilot.detach()


@contextmanager
def _alone() -> Iterator[None]:
    yield


def _ratio(block: list[Window], figure: Callable[[Window], float]) -> float:
    attached = [figure(window) for window in block if window.system == "attached"]
    alone = [figure(window) for window in block if window.system != "attached"]
    return float(np.mean(attached) / np.mean(alone))


def _spread_of_same(windows: list[Window]) -> float:
    """How much windows of the same kind differ from each other, relative to their mean."""
    spreads = []
    for system in set(ORDER):
        rates = [window.records_per_second for window in windows if window.system == system]
        spreads.append(float(np.std(rates) / np.mean(rates)))
    return max(spreads)


def _row(number: int, window: Window) -> Row:
    return {
        "case": f"block {number // len(ORDER) + 1}",
        "system": window.system,
        "records_per_second": round(window.records_per_second),
        "batch_seconds": round(window.batch_seconds, 3),
        "batches": window.batches,
    }


def _workload() -> WordCount:
    """No service times: the operators are as fast as the processors let them be."""
    return WordCount(
        profile=f"constant:{RECORDS_PER_BATCH}",
        seconds_per_sentence=0.0,
        seconds_per_word=0.0,
        source_partitions=TASKS,
        count_partitions=TASKS,
        state_partitions=TASKS,
        start=time.time() - DAYS_AGO,
        max_records_per_batch=RECORDS_PER_BATCH,
    )
