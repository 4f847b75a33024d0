"""Nexmark on two cores: what each query sustains, its latency, and that no generator bounds it.

A query's capacity is measured with a full batch always waiting. Then a share of that is offered by the
clock, and counts as sustained if the backlog does not grow; if it does, a smaller share is tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.bench.nexmark_migration import first_line
from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.spark_cluster import cluster, scratch_directory
from penstock.bench.spark_workload import Pace, capacity, run_load, workload_shape
from penstock.errors import PenstockError
from penstock.workloads.arrivals import LoadOutcome
from penstock.workloads.catalog import Ask, Workload, workload
from penstock.workloads.nexmark import COLUMNS, Nexmark
from penstock.workloads.nexmark_queries import QUERIES, Windows, query_of
from penstock.workloads.nexmark_streams import GeneratedStreams

CORES = 2
QUICK_QUERIES = (1, 5, 8)
PACE_OF_EVENT_TIME = 10_000.0
"""Events in a second of event time: a window of 10 s holds 100,000, and closes within a batch or two."""

CHUNK = 50_000
"""Events made at a time when the generator's speed is taken, as many as the source makes."""

Progress = Callable[[str], None]
Wanted = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a run of the benchmark looks at each query."""

    queries: tuple[int, ...]
    batches: int
    batch_seconds: float
    """About as long as batches last while a capacity is measured."""
    pace: Pace
    shares: tuple[float, ...]
    """Of the capacity, tried in this order until one is sustained."""


FULL = Effort(tuple(QUERIES), batches=4, batch_seconds=2.0, pace=Pace(8, 12), shares=(0.75, 0.5))
QUICK = Effort(QUICK_QUERIES, batches=2, batch_seconds=1.5, pace=Pace(3, 8), shares=(0.7,))
FIRST_BATCH = 100_000
"""Events of the batches that warm a query up and tell how large the measured ones should be."""
SMALLEST_BATCH, LARGEST_BATCH = 20_000, 2_000_000


def run(quick: bool, progress: Progress) -> BenchReport:
    """The generator first, then the source alone, then query after query on one cluster."""
    effort = QUICK if quick else FULL
    everything = {kind: list(columns) for kind, columns in COLUMNS.items()}
    generator = events_per_second(everything, progress)
    shape = workload_shape(CORES, "penstock bench nexmark")
    with cluster(shape) as spark, scratch_directory() as scratch:
        source = _source_capacity(spark, scratch, effort, progress)
        rows, failures = _rows(spark, scratch, effort, progress)
    summary = _summary(rows, generator, source)
    judged = targets(rows, generator, len(failures))
    return BenchReport("nexmark", summary, rows, judged, {}, [*failures, *_notes(effort)])


def _rows(
    spark: SparkSession, scratch: Path, effort: Effort, progress: Progress
) -> tuple[list[Row], list[str]]:
    """A row for each query; one that could not be measured costs its own row and no other's."""
    rows: list[Row] = []
    failures: list[str] = []
    for place, number in enumerate(effort.queries, start=1):
        progress(f"query {number}, {place} of {len(effort.queries)}")
        try:
            rows.append(_row(spark, scratch, number, effort, progress))
        except (PenstockError, PySparkException, Py4JError) as problem:
            failures.append(f"q{number} could not be measured: {first_line(problem)}")
    return rows, failures


def events_per_second(wanted: Wanted, progress: Progress, seconds: float = 0.7) -> float:
    """Events a second that one core makes with these columns, of all kinds; the best of three tries."""
    progress(f"generating {', '.join(wanted)}")
    stream = Nexmark(out_of_order_share=0.05)
    return max(_generated(stream, wanted, seconds) for _ in range(3))


def _generated(stream: Nexmark, wanted: Wanted, seconds: float) -> float:
    begun, events = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        for kind, columns in wanted.items():
            stream.batch(kind, events, CHUNK, columns)
        events += CHUNK
    return events / (time.perf_counter() - begun)


def _row(spark: SparkSession, scratch: Path, number: int, effort: Effort, progress: Progress) -> Row:
    entry = workload(f"nexmark-q{number}")
    most = _capacity(spark, scratch, entry, effort, progress)
    found, rate = _sustained(spark, scratch, entry, most, effort, progress)
    made = events_per_second(columns_of(spark, number), progress)
    return {"case": f"q{number}", **row_figures(found, rate, most, made)}


def _capacity(
    spark: SparkSession, scratch: Path, entry: Workload, effort: Effort, progress: Progress
) -> float:
    """Events a second with batches of about the wanted length: short ones would be all fixed cost."""
    progress(f"{entry.name}: capacity")
    first = scratch / f"{entry.name}-first"
    roughly = capacity(spark, entry, _ask(FIRST_BATCH), first, batches=1, warm_up=1)
    events = round(min(max(roughly * effort.batch_seconds, SMALLEST_BATCH), LARGEST_BATCH))
    return capacity(spark, entry, _ask(events), scratch / f"{entry.name}-most", effort.batches, warm_up=1)


def _ask(most: int | None) -> Ask:
    return Ask("", 0.0, CORES, CORES, events_per_second=PACE_OF_EVENT_TIME, most_per_batch=most)


def _sustained(
    spark: SparkSession,
    scratch: Path,
    entry: Workload,
    most: float,
    effort: Effort,
    progress: Progress,
) -> tuple[LoadOutcome, float]:
    """The first share of the capacity that is sustained, or the last one tried."""
    for share in effort.shares:
        rate = round(most * share)
        asked = replace(_ask(None), profile=f"constant:{rate}")
        progress(f"{entry.name}: {rate} events/s")
        found = run_load(spark, entry, asked, scratch / f"{entry.name}-{share}", effort.pace, progress)
        if found.sustained:
            break
    return found, rate


def row_figures(found: LoadOutcome, rate: float, most: float, made: float) -> dict[str, Any]:
    """A query's row: rates count events of all kinds; one that was not sustained has none.

    While a backlog from the start is worked off more is read than is offered: that is not sustained.
    """
    sustained = min(found.records_per_second, rate) if found.sustained else None
    return {
        "sustained_records_per_s": sustained,
        "records_per_s_per_core": None if sustained is None else sustained / CORES,
        "p50_ms": found.p50_ms,
        "p99_ms": found.p99_ms,
        "offered_records_per_s": rate,
        "capacity_records_per_s": most,
        "generator_records_per_s_per_core": made,
        "generator_share": most / (made * CORES),
        "backlog_growth_per_s": found.backlog_growth_per_second,
        "batches": found.batches,
    }


def targets(rows: list[Row], generator: float, unmeasured: int = 0) -> list[Target]:
    """What the benchmark promises."""
    failed = sum(row["sustained_records_per_s"] is None for row in rows) + unmeasured
    share = max((row["generator_share"] for row in rows), default=None)
    return [
        Target("generator, events a second on one core", ">= 2000000", generator),
        Target("share of the cores that generating takes, at most", "<= 0.5", share),
        Target("queries without a rate that they sustain", "== 0", failed),
    ]


def _summary(rows: list[Row], generator: float, source: float) -> dict[str, float]:
    figures = {
        "generator_events_per_s": generator,
        "source_alone_events_per_s": source,
        "cores": float(CORES),
    }
    for row in rows:
        if row["sustained_records_per_s"] is not None:
            figures[f"{row['case']}_records_per_s"] = row["sustained_records_per_s"]
    return figures


def _source_capacity(spark: SparkSession, scratch: Path, effort: Effort, progress: Progress) -> float:
    """All columns of the bids, read and thrown away: what reading alone can do."""
    return _capacity(spark, scratch, Workload("nexmark-source", "", _all_bids), effort, progress)


def _all_bids(spark: SparkSession, ask: Ask) -> DataFrame:
    stream = Nexmark(events_per_second=ask.events_per_second, first_time=ask.start)
    return GeneratedStreams(spark, stream, ask.load()).of("bids")


class _Noting:
    """Streams that note which columns a query asks for."""

    def __init__(self, streams: GeneratedStreams) -> None:
        self.streams = streams
        self.wanted: dict[str, Sequence[str]] = {}

    def of(self, kind: str, *columns: str) -> DataFrame:
        self.wanted[kind] = columns or tuple(COLUMNS[kind])
        return self.streams.of(kind, *columns)


def columns_of(spark: SparkSession, number: int) -> Wanted:
    """The columns of each kind that a query reads."""
    noting = _Noting(GeneratedStreams(spark, Nexmark(), {"profile": "constant:1", "start": "1"}))
    query_of(number)(noting, Windows())
    return noting.wanted


def _notes(effort: Effort) -> list[str]:
    shares = " then ".join(f"{share:.0%}" for share in effort.shares)
    return [
        "records are events of all kinds: a query that reads bids alone is given 92 rows for 100 of them",
        "latency is from a record's offer to the commit of its batch; batches follow each other at once",
        f"capacity is the median of {effort.batches} batches of about {effort.batch_seconds:g} s, with fixed "
        f"costs; offered is {shares} of it for {effort.pace.seconds:g} s",
        "generator share: processor time that making a query's columns takes at its capacity, of both cores",
    ]
