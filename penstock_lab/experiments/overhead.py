"""The cost of the autopilot: throughput and batch time of one application, attached against not attached.

One query runs through on one cluster from beginning to end. It is not paced and its source never runs dry, so
that batches of one size follow each other at once and use all the processor time there is: what the autopilot
takes is missing in them. Meanwhile the autopilot is attached and detached again and again, or whatever else
an experiment alternates. The batches after each switch are left out; a block that counts holds whole policy
intervals, so that it has its share of what the autopilot does in each.

A block's figure is the mean over all its batches, never the median: the autopilot works once an interval and
slows down the few batches that it meets, which a median would hide. Blocks are compared with their neighbours
in time, and the interval comes from resampling these comparisons. If the interval contains the target's
bound, the target counts as not measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from penstock.errors import ActionFailed
from penstock_lab.experiments.batches import BatchSeen
from penstock_lab.experiments.measurement import (
    Extent,
    Measurement,
    Progress,
    tell_settings,
)
from penstock_lab.experiments.spark_query import attach_autopilot, list_batches, make_endless
from penstock_lab.ground.processes import ProcessorTime, processor_time
from penstock_lab.ground.spark_cluster import ClusterShape, cluster, scratch_directory
from penstock_lab.workloads.word_count import WordCount, start_word_count

# all reports are kept and read once at the end, so that the benchmark itself asks for nothing meanwhile
CONF = {"spark.sql.streaming.numRecentProgressUpdates": "5000"}
SHAPE = ClusterShape(executors=2, cores=1, name="penstock bench overhead", log_level="OFF", conf=CONF)
SIZE: dict[str, object] = {"min_executors": SHAPE.executors, "max_executors": SHAPE.executors}
RECORDS_PER_BATCH = 5_000
TASKS = 2
ATTACHED, ALONE = "attached", "not attached"
QUAD = 4
RESAMPLES = 10_000
CONFIDENCE = 0.95
FEWEST_QUADS = 4
"""Fewer cannot be resampled to an interval that means anything."""


@dataclass(frozen=True, slots=True)
class Length:
    """The length of the experiment; a block that counts is a multiple of the policy interval of 10 s."""

    warm_up_seconds: float = 70.0
    settle_seconds: float = 3.0
    first_window_seconds: float = 11.0
    """An autopilot's first window also reads the query's plan, once in the query's life."""
    measured_seconds: float = 20.0
    quads: int = 6


QUICK = Length(warm_up_seconds=40.0, quads=1)
REPORT = Length(quads=FEWEST_QUADS)


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """The part of a block that counts: from when to when, and the processor time that was used in it."""

    system: str
    start: float
    end: float
    used: ProcessorTime


@dataclass(frozen=True, slots=True)
class Block:
    """The figures of one block; `processor_seconds` are of all processes, for a million records."""

    system: str
    records_per_second: float
    batch_seconds: float
    batches: int
    processor_seconds: float
    driver_share: float
    """Processors that the driver kept busy, its Python process and its JVM together."""

    @property
    def driver_seconds(self) -> float:
        """The driver's processor time for a million records."""
        return self.driver_share / self.records_per_second * 1e6


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides that are alternated, and what is held while the first one is measured."""

    first: str
    second: str
    hold: Callable[[], AbstractContextManager[object]]
    settle_seconds: float
    """How long the first side has work that it does once; the second one only settles."""


def run(extent: Extent, progress: Progress) -> Measurement:
    """Alternate in one application; quick has few blocks, too few for an interval."""
    length = QUICK if extent.quick else REPORT if extent.report else Length()
    with cluster(SHAPE) as spark, scratch_directory() as scratch:
        attached = Sides(
            ATTACHED,
            ALONE,
            lambda: attach_autopilot(spark, set_up(scratch)),
            length.first_window_seconds,
        )
        return compare_blocks(alternate(spark, scratch, attached, length, progress))


def alternate(spark: Any, scratch: Path, sides: Sides, length: Length, progress: Progress) -> list[Block]:
    """Run an endless query, and measure it with the one side and the other by turns."""
    # no service times: the operators are as fast as the processors let them be
    workload = make_endless(
        replace(WordCount("", 0.0, 0.0).with_tasks(TASKS), state_partitions=TASKS), RECORDS_PER_BATCH
    )
    query = start_word_count(spark, workload, str(scratch / "checkpoint"), trigger_seconds=0)
    progress(f"warming up for {length.warm_up_seconds:g} s")
    time.sleep(length.warm_up_seconds / 2)
    with sides.hold():
        # what an autopilot loads and compiles once in a process is no cost of a second hour
        time.sleep(length.warm_up_seconds / 2)
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    spans: list[BlockSpan] = []
    for is_first in order_blocks(length.quads * QUAD):
        spans.append(_measure_span(sides, is_first, length, jvm))
        progress(f"block {len(spans)} of {length.quads * QUAD}: {spans[-1].system}")
    batches = list_batches(query)
    query.stop()
    return [make_block(span, batches) for span in spans]


def _measure_span(sides: Sides, is_first: bool, length: Length, jvm: int) -> BlockSpan:
    with sides.hold() if is_first else nullcontext():
        time.sleep(sides.settle_seconds if is_first else length.settle_seconds)
        start, before = time.time(), processor_time(jvm)
        time.sleep(length.measured_seconds)
        end, after = time.time(), processor_time(jvm)
    return BlockSpan(sides.first if is_first else sides.second, start, end, after.since(before))


def set_up(scratch: Path) -> dict[str, object]:
    """Return the settings of a user, with an actuator, but with no other size to go to."""
    return {**SIZE, "journal": str(scratch / "journal.db")}


def make_block(span: BlockSpan, batches: Sequence[BatchSeen]) -> Block:
    """Take the means over the batches that ran wholly in the span."""
    whole = [batch for batch in batches if batch.start >= span.start and batch.end <= span.end]
    if len(whole) < 2:
        raise ActionFailed(f"only {len(whole)} batches ran in a block of {span.end - span.start:.0f} s")
    rate = sum(batch.records for batch in whole) / (whole[-1].end - whole[0].start)
    seconds = span.end - span.start
    return Block(
        system=span.system,
        records_per_second=rate,
        batch_seconds=fmean(batch.seconds for batch in whole),
        batches=len(whole),
        processor_seconds=span.used.everything / (rate * seconds) * 1e6,
        driver_share=(span.used.python + span.used.driver_jvm) / seconds,
    )


def compare_blocks(blocks: Sequence[Block]) -> Measurement:
    """Reduce the blocks to ratios with their intervals."""
    figures: dict[str, Callable[[Block], float]] = {
        "throughput_ratio": lambda block: block.records_per_second,
        "latency_ratio": lambda block: block.batch_seconds,
        "processor_ratio": lambda block: block.processor_seconds,
    }
    summary: dict[str, float] = {}
    for name, figure in figures.items():
        summary |= tell_ratio(name, blocks, ATTACHED, figure)
    for name, system in (("attached", ATTACHED), ("not_attached", ALONE)):
        summary[f"driver_share_{name}"] = fmean(b.driver_share for b in blocks if b.system == system)
    summary |= {"blocks": float(len(blocks)), "batches": float(sum(block.batches for block in blocks))}
    rows = [
        {
            "case": f"block {number}",
            "system": block.system,
            "records_per_second": round(block.records_per_second),
            "batch_seconds": round(block.batch_seconds, 4),
            "batches": block.batches,
            "processor_seconds": round(block.processor_seconds, 2),
            "driver_share": round(block.driver_share, 4),
            "settings": tell_settings(SIZE) if block.system == ATTACHED else "",
        }
        for number, block in enumerate(blocks, start=1)
    ]
    return Measurement(rows, summary, [*METHOD])


def tell_ratio(
    name: str, blocks: Sequence[Block], first: str, figure: Callable[[Block], float]
) -> dict[str, float]:
    """Return the ratio of the first side's figure to the other's, with the bounds of its interval."""
    ratio = compare_sides([block.system == first for block in blocks], [figure(block) for block in blocks])
    return {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high}


METHOD = [
    "a ratio is taken in each four blocks; the summary has the mean of the middle half of these ratios, "
    "and the bounds (_low, _high) of its interval, 95 % by resampling the fours",
    "processor_ratio compares the processor time for a record of all processes, the driver's and the "
    "executors'; driver_share is in processors, of the driver's Python process and JVM",
    "what happens once is left out: attaching and detaching, what is loaded for the first time in a "
    "process, and an autopilot's first window, which also reads the query's plan",
    "published figures are the largest of the paper's instrumented engines; Heron paid nothing there",
]


def order_blocks(blocks: int) -> tuple[bool, ...]:
    """Choose the blocks of the first side, in the order of Thue and Morse: ABBA BAAB BAAB ABBA ...

    Both sides meet a drift of the machine alike, whether it is steady or slows down.
    """
    return tuple(number.bit_count() % 2 == 0 for number in range(blocks))


@dataclass(frozen=True, slots=True)
class Ratio:
    """First side over second side, with the bounds of its bootstrap interval; NaN bounds: too few blocks."""

    value: float
    low: float
    high: float

    def tell(self, least: float = -math.inf, most: float = math.inf) -> float | None:
        """Return the ratio if its whole interval lies on one side of the bound, else None."""
        kept = least <= self.low and self.high <= most
        broken = self.high < least or self.low > most
        return self.value if kept or broken else None


def compare_sides(first: Sequence[bool], figures: Sequence[float]) -> Ratio:
    """Compare the sides within every four blocks, which are near in time, then take all fours together.

    The mean of the middle half of the fours counts, so that a disturbance of a few blocks does not.
    """
    if not all(figure > 0 for figure in figures):
        # a figure that was not measured, such as processor time on some systems, has no ratio
        return Ratio(math.nan, math.nan, math.nan)
    logs = np.log(np.array(figures, dtype=float))
    signs = np.where(np.array(first), 1.0, -1.0)
    whole = len(logs) // QUAD * QUAD
    quads = (logs[:whole] * signs[:whole]).reshape(-1, QUAD).sum(axis=1) / (QUAD / 2)
    if len(quads) < FEWEST_QUADS:
        return Ratio(float(np.exp(quads.mean())), math.nan, math.nan)
    draws = np.random.default_rng(0).integers(0, len(quads), size=(RESAMPLES, len(quads)))
    found = np.exp(_mean_middle(quads[draws]))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return Ratio(float(np.exp(_mean_middle(quads[None, :])[0])), float(low), float(high))


def _mean_middle(samples: np.ndarray) -> np.ndarray:
    """Return the mean of each row without its lowest and its highest quarter."""
    ordered = np.sort(samples, axis=1)
    cut = ordered.shape[1] // 4
    middle: np.ndarray = ordered[:, cut : ordered.shape[1] - cut].mean(axis=1)
    return middle
