"""What the autopilot costs: throughput and batch time of one application, attached against not attached.

One query runs through on one cluster from beginning to end. It is not paced and its source never runs dry, so
that batches of one size follow each other at once and use all the processor time there is: what the autopilot
takes is missing in them. Meanwhile the autopilot is attached and detached again and again. The batches after
each switch are left out; a block that counts holds whole policy intervals, so that it has its share of what
the autopilot does in each.

A block's figure is the mean over all its batches, never the median: the autopilot works once an interval and
slows down the few batches that it meets, which a median would hide. Blocks are compared with their neighbours
in time, and the interval comes from resampling these comparisons. While it holds the target's bound, the
target counts as not measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from penstock.attach import attach
from penstock.bench.paired import QUAD, Ratio, order, ratio_of
from penstock.bench.processes import ProcessorTime, processor_time
from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.spark_cluster import ClusterShape, cluster, scratch_directory
from penstock.bench.spark_experiment import DAYS_AGO, batches_of
from penstock.bench.traces import BatchSeen
from penstock.errors import ActionFailed
from penstock.workloads.word_count import WordCount, start_word_count

# all reports are kept and read once at the end, so that the benchmark itself asks for nothing meanwhile
CONF = {"spark.sql.streaming.numRecentProgressUpdates": "5000"}
SHAPE = ClusterShape(executors=2, cores=1, name="penstock bench overhead", log_level="OFF", conf=CONF)
RECORDS_PER_BATCH = 5_000
TASKS = 2
ENDING_SECONDS = 60.0
ATTACHED, ALONE = "attached", "not attached"
LEAST_THROUGHPUT, MOST_LATENCY = 0.99, 1.01

PUBLISHED = {"ds2_flink_latency_ratio": 1.13, "ds2_timely_latency_ratio": 1.20}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Length:
    """How long the benchmark runs; a block that counts is a multiple of the policy interval of 10 s."""

    warm_up_seconds: float = 70.0
    settle_seconds: float = 3.0
    first_window_seconds: float = 11.0
    """An autopilot's first window also learns the query's plan, which it does once in the query's life."""
    measured_seconds: float = 20.0
    quads: int = 6

    def settling(self, attached: bool) -> float:
        """How long a block runs before it counts."""
        return self.first_window_seconds if attached else self.settle_seconds


QUICK = Length(warm_up_seconds=40.0, quads=1)


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a block that counts: from when to when, and the processor time that was used in it."""

    system: str
    start: float
    end: float
    used: ProcessorTime


@dataclass(frozen=True, slots=True)
class Block:
    """What one block showed; `processor_seconds` are of all processes, for a million records."""

    system: str
    records_per_second: float
    batch_seconds: float
    batches: int
    processor_seconds: float
    driver_share: float
    """Processors that the driver kept busy, its Python process and its JVM together."""


def run(quick: bool, progress: Progress) -> BenchReport:
    """Alternate in one application; quick has few blocks, too few for an interval."""
    return measured(QUICK if quick else Length(), progress)


def measured(length: Length, progress: Progress) -> BenchReport:
    """The same for any length."""
    with cluster(SHAPE) as spark, scratch_directory() as scratch:
        query = start_word_count(spark, _workload(), str(scratch / "checkpoint"), trigger_seconds=0)
        progress(f"warming up for {length.warm_up_seconds:g} s")
        time.sleep(length.warm_up_seconds / 2)
        with _attached(spark, scratch / "journal.db"):
            # what an autopilot loads and compiles once in a process is no cost of a second hour
            time.sleep(length.warm_up_seconds / 2)
        spans = []
        for span in _alternate(spark, length, scratch / "journal.db"):
            spans.append(span)
            progress(f"block {len(spans)} of {length.quads * QUAD}: {span.system}")
        batches = batches_of(query)
        query.stop()
    return report([block_of(span, batches) for span in spans])


def _alternate(spark: Any, length: Length, journal: Path) -> Iterator[Span]:
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    for attached in order(length.quads * QUAD):
        with _attached(spark, journal) if attached else _alone():
            time.sleep(length.settling(attached))
            start, before = time.time(), processor_time(jvm)
            time.sleep(length.measured_seconds)
            end, after = time.time(), processor_time(jvm)
        yield Span(ATTACHED if attached else ALONE, start, end, after.since(before))


@contextmanager
def _attached(spark: Any, journal: Path) -> Iterator[None]:
    """Attached as a user would be, with an actuator, but with no other size to go to."""
    size = {"min_executors": SHAPE.executors, "max_executors": SHAPE.executors}
    autopilot = attach(spark, settings={**size, "journal": str(journal)})
    try:
        yield
    finally:
        autopilot.detach()
        # one that were still at it would work in the block that must be without
        if not autopilot.ended_within(ENDING_SECONDS):
            raise ActionFailed(f"the autopilot has not ended {ENDING_SECONDS:g} s after it was detached")


@contextmanager
def _alone() -> Iterator[None]:
    yield


def block_of(span: Span, batches: Sequence[BatchSeen]) -> Block:
    """The means over the batches that ran wholly in the span."""
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


def report(blocks: Sequence[Block]) -> BenchReport:
    """The ratios with their intervals, and what they say about the targets."""
    throughput = _ratio(blocks, lambda block: block.records_per_second)
    latency = _ratio(blocks, lambda block: block.batch_seconds)
    summary = {
        **_figures("throughput_ratio", throughput),
        **_figures("latency_ratio", latency),
        **_figures("processor_ratio", _ratio(blocks, lambda block: block.processor_seconds)),
        "driver_share_attached": fmean(b.driver_share for b in blocks if b.system == ATTACHED),
        "driver_share_not_attached": fmean(b.driver_share for b in blocks if b.system == ALONE),
        "blocks": float(len(blocks)),
        "batches": float(sum(block.batches for block in blocks)),
    }
    judged = throughput.judged(least=LEAST_THROUGHPUT), latency.judged(most=MOST_LATENCY)
    targets = [
        Target("throughput, attached against not attached", f">= {LEAST_THROUGHPUT}", judged[0]),
        Target("batch time, attached against not attached", f"<= {MOST_LATENCY}", judged[1]),
    ]
    doubts = _doubts("throughput", throughput, judged[0]) + _doubts("batch time", latency, judged[1])
    rows = [_row(number, block) for number, block in enumerate(blocks)]
    return BenchReport("overhead", summary, rows, targets, PUBLISHED, _notes() + doubts)


def _ratio(blocks: Sequence[Block], figure: Callable[[Block], float]) -> Ratio:
    return ratio_of([block.system == ATTACHED for block in blocks], [figure(block) for block in blocks])


def _figures(name: str, ratio: Ratio) -> dict[str, float]:
    return {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high}


def _doubts(what: str, ratio: Ratio, judged: float | None) -> list[str]:
    if judged is not None:
        return []
    return [
        f"{what}: not measured; its interval of {ratio.low:.3f} to {ratio.high:.3f} does not tell on which "
        "side of the bound it lies. Run it on a machine that does nothing else"
    ]


def _notes() -> list[str]:
    return [
        "a ratio is taken in each four blocks; the summary has the mean of the middle half of these ratios, "
        "and the bounds (_low, _high) of its interval, 95 % by resampling the fours",
        "processor_ratio compares the processor time for a record of all processes, the driver's and the "
        "executors'; driver_share is in processors, of the driver's Python process and JVM",
        "what happens once is left out: attaching and detaching, what is loaded for the first time in a "
        "process, and an autopilot's first window, which also reads the query's plan",
        "published figures are the largest of the paper's instrumented engines; Heron paid nothing there",
    ]


def _row(number: int, block: Block) -> Row:
    return {
        "case": f"block {number + 1}",
        "system": block.system,
        "records_per_second": round(block.records_per_second),
        "batch_seconds": round(block.batch_seconds, 4),
        "batches": block.batches,
        "processor_seconds": round(block.processor_seconds, 2),
        "driver_share": round(block.driver_share, 4),
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
