"""What the autopilot costs: throughput and batch time of one application, attached against not attached.

The query is not paced and its source never runs dry, so that batches follow each other at once and use
all the processor time there is: what the autopilot takes is missing in them. Windows alternate in the
order attached, not, not, attached, so that a drift of the machine falls on both sides alike.

Other work on the machine can move a window by a fifth, far more than what is looked for, and a ratio
above 1 is no gain but the same noise. So the ratio comes with its standard error over the blocks, and
where that is too large to see one per cent the targets count as not measured.
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

LARGEST_ERROR = 0.01
"""A target of one per cent cannot be judged by a ratio whose standard error is larger than that."""

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
    driver_share: float = 0.0
    """Processor seconds a second of the driver's Python process, where the autopilot's thread runs."""


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
    """Ratios per block of four windows, their median, and how sure it is."""
    blocks = [windows[at : at + len(ORDER)] for at in range(0, len(windows), len(ORDER))]
    throughput = _Ratios.of(blocks, lambda window: window.records_per_second)
    latency = _Ratios.of(blocks, lambda window: window.batch_seconds)
    summary = {
        **throughput.figures("throughput_ratio"),
        **latency.figures("latency_ratio"),
        "driver_share_attached": _mean_share(windows, "attached"),
        "driver_share_not_attached": _mean_share(windows, "not attached"),
        "blocks": float(len(blocks)),
    }
    targets = [
        Target("throughput, attached against not attached", ">= 0.99", throughput.judged),
        Target("batch time, attached against not attached", "<= 1.01", latency.judged),
    ]
    rows = [_row(number, window) for number, window in enumerate(windows)]
    notes = [*_notes(), *throughput.doubts("throughput"), *latency.doubts("batch time")]
    return BenchReport("overhead", summary, rows, targets, PUBLISHED, notes)


@dataclass(frozen=True, slots=True)
class _Ratios:
    """Attached over not attached, a value a block."""

    values: tuple[float, ...]

    @staticmethod
    def of(blocks: list[list[Window]], figure: Callable[[Window], float]) -> _Ratios:
        return _Ratios(tuple(_ratio(block, figure) for block in blocks))

    @property
    def error(self) -> float:
        """Standard error of the blocks' mean; one block alone says nothing about it."""
        if len(self.values) < 2:
            return float("inf")
        return float(np.std(self.values, ddof=1) / np.sqrt(len(self.values)))

    @property
    def judged(self) -> float | None:
        return median(self.values) if self.error <= LARGEST_ERROR else None

    def figures(self, name: str) -> dict[str, float]:
        spread = {"low": min(self.values), "high": max(self.values), "standard_error": self.error}
        return {name: median(self.values), **{f"{name}_{key}": value for key, value in spread.items()}}

    def doubts(self, what: str) -> list[str]:
        if self.error <= LARGEST_ERROR:
            return []
        return [
            f"{what}: not measured; the ratios of the blocks differ too much (standard error "
            f"{self.error:.3f}) to see {LARGEST_ERROR:.0%}. Run it on a machine that does nothing else"
        ]


def _notes() -> list[str]:
    return [
        "a ratio is taken in each block of four windows (attached, not, not, attached); the summary has "
        "their median, the lowest, the highest and the standard error",
        "driver_share is processor time of the driver's Python process alone; what the driver's JVM does "
        "for the autopilot shows in the ratios only",
        "published figures are the largest of the paper's instrumented engines; Heron paid nothing there",
    ]


def window_of(
    system: str, batches: list[BatchSeen], start: float, end: float, driver_seconds: float = 0.0
) -> Window:
    """Throughput and batch time of the batches that ran wholly in the window."""
    whole = [batch for batch in batches if batch.start >= start and batch.end <= end]
    if len(whole) < 2:
        raise ActionFailed(f"only {len(whole)} batches ran in a window of {end - start:.0f} s")
    records = sum(batch.records for batch in whole)
    span = whole[-1].end - whole[0].start
    taken = median(batch.seconds for batch in whole)
    return Window(system, records / span, taken, len(whole), driver_seconds / (end - start))


def _windows(
    spark: Any, query: Any, length: Length, journal: Path, progress: Callable[[str], None]
) -> Iterator[Window]:
    for number in range(length.blocks * len(ORDER)):
        system = ORDER[number % len(ORDER)]
        with _attached(spark, journal) if system == "attached" else _alone():
            start, used = time.time(), time.process_time()
            time.sleep(length.window_seconds)
            end, used = time.time(), time.process_time() - used
            window = window_of(system, batches_of(query), start, end, used)
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


def _mean_share(windows: list[Window], system: str) -> float:
    return float(np.mean([window.driver_share for window in windows if window.system == system]))


def _row(number: int, window: Window) -> Row:
    return {
        "case": f"block {number // len(ORDER) + 1}",
        "system": window.system,
        "records_per_second": round(window.records_per_second),
        "batch_seconds": round(window.batch_seconds, 3),
        "batches": window.batches,
        "driver_share": round(window.driver_share, 4),
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
