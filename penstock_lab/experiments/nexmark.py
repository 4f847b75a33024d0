"""Nexmark queries on a cluster: what each sustains on two cores, and the size that DS2 finds for it.

A query's capacity is measured with a full batch always waiting. Then a share of that is offered by the
clock, and counts as sustained if the backlog does not grow; if it does, a smaller share is tried.

Convergence is DS2's table 4, with as many slots as a small cluster has: six queries from two initial sizes.
Before the query sees an event, the event takes a service time in a slot, which sleeps. So the slots that a
query needs are known, and more slots than cores do not disturb each other. Queries need different numbers of
slots; each runs once on the fewest executors and once on all, and DS2 is attached when it runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.dataflow.window import EXECUTORS
from penstock.decide.goals import Goals
from penstock_lab.experiments.batches import LoadOutcome
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row, tell_settings
from penstock_lab.experiments.spark_query import (
    QUICK_DECISIONS,
    RunLength,
    attach_autopilot,
    await_moment,
    describe_workload_cluster,
    measure_capacity,
    note_failure,
    read_size_changes,
    run_load,
    run_workload,
)
from penstock_lab.ground.spark_cluster import (
    ClusterShape,
    cluster,
    executor_ids,
    hold_executors,
    scratch_directory,
)
from penstock_lab.workloads.catalog import Ask, Workload, find_workload
from penstock_lab.workloads.nexmark.events import COLUMNS, Nexmark
from penstock_lab.workloads.nexmark.queries import QUERIES, Windows, query_of
from penstock_lab.workloads.nexmark.streams import GeneratedStreams, PacedStreams

CORES = 2
QUICK_QUERIES = (1, 5, 8)
ASK = Ask("", 0.0, CORES, source_partitions=CORES, events_per_second=10_000.0)
"""At this pace of event time a window of 10 s holds 100,000 events, and closes within a batch or two."""
CHUNK = 50_000
"""Events made at a time when the generator's speed is taken, as many as the source makes."""
Wanted = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class QueryEffort:
    """How long each query is measured."""

    queries: tuple[int, ...]
    batches: int
    batch_seconds: float
    """About as long as batches last while a capacity is measured."""
    pace: RunLength
    shares: tuple[float, ...]
    """Of the capacity, tried in this order until one is sustained."""


FULL = QueryEffort(tuple(QUERIES), batches=4, batch_seconds=2.0, pace=RunLength(8, 12), shares=(0.75, 0.5))
QUICK = QueryEffort(QUICK_QUERIES, batches=2, batch_seconds=1.5, pace=RunLength(3, 8), shares=(0.7,))
FIRST_BATCH = 100_000
"""Events of the batches that warm a query up and tell how large the measured ones should be."""
SMALLEST_BATCH, LARGEST_BATCH = 20_000, 2_000_000


def run(extent: Extent, progress: Progress) -> Measurement:
    """Time the generator first, then the source alone, then query after query on one cluster."""
    effort = QUICK if extent.quick else FULL
    everything = {kind: list(columns) for kind, columns in COLUMNS.items()}
    figures = {"generator_events_per_s": time_generator(everything, progress)}
    rows: list[Row] = []
    failures: list[str] = []
    shape = describe_workload_cluster(CORES, "penstock bench nexmark")
    with cluster(shape) as spark, scratch_directory() as scratch:
        queries = _Queries(spark, scratch, effort, progress)
        # all columns of the bids, read and thrown away
        source = Workload("nexmark-source", "", _read_bids)
        figures["source_alone_events_per_s"] = queries.find_capacity(source)
        for place, number in enumerate(effort.queries, start=1):
            progress(f"query {number}, {place} of {len(effort.queries)}")
            with note_failure(failures, f"q{number}"):
                rows.append(queries.measure(number))
    figures["cores"] = float(CORES)
    sustained = {f"{row['case']}_records_per_s": row["sustained_records_per_s"] for row in rows}
    figures |= {name: rate for name, rate in sustained.items() if rate is not None}
    return Measurement(rows, figures, _describe_method(effort), failures)


def time_generator(wanted: Wanted, progress: Progress, seconds: float = 0.7) -> float:
    """Time how many events a second one core makes with these columns, the best of three tries."""
    progress(f"generating {', '.join(wanted)}")
    stream, rates = Nexmark(out_of_order_share=0.05), []
    for _ in range(3):
        begun, events = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            for kind, columns in wanted.items():
                stream.batch(kind, events, CHUNK, columns)
            events += CHUNK
        rates.append(events / (time.perf_counter() - begun))
    return max(rates)


@dataclass(frozen=True)
class _Queries:
    """Queries measured on one cluster."""

    spark: SparkSession
    scratch: Path
    effort: QueryEffort
    progress: Progress

    def measure(self, number: int) -> Row:
        """Return the row of one query."""
        entry = find_workload(f"nexmark-q{number}")
        most = self.find_capacity(entry)
        found, rate = self._find_sustained(entry, most)
        made = time_generator(find_columns(self.spark, number), self.progress)
        return {"case": f"q{number}", **make_figures(found, rate, most, made)}

    def find_capacity(self, entry: Workload) -> float:
        """Measure events a second with batches of about the wanted length: short ones are all fixed cost."""
        self.progress(f"{entry.name}: capacity")
        first, ask = self.scratch / f"{entry.name}-first", replace(ASK, max_records_per_batch=FIRST_BATCH)
        roughly = measure_capacity(self.spark, entry, ask, first, batches=1)
        events = round(min(max(roughly * self.effort.batch_seconds, SMALLEST_BATCH), LARGEST_BATCH))
        most, ask = self.scratch / f"{entry.name}-most", replace(ASK, max_records_per_batch=events)
        return measure_capacity(self.spark, entry, ask, most, self.effort.batches)

    def _find_sustained(self, entry: Workload, most: float) -> tuple[LoadOutcome, float]:
        """Find the first share of the capacity that is sustained, or the last one tried."""
        for share in self.effort.shares:
            rate, checkpoint = round(most * share), self.scratch / f"{entry.name}-{share}"
            self.progress(f"{entry.name}: {rate} events/s")
            asked = replace(ASK, profile=f"constant:{rate}")
            found = run_load(self.spark, entry, asked, checkpoint, self.effort.pace, self.progress)
            if found.sustained:
                break
        return found, rate


def make_figures(found: LoadOutcome, rate: float, most: float, made: float) -> dict[str, Any]:
    """Return a query's figures: rates count events of all kinds; a rate that was not sustained is None.

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


def _read_bids(spark: SparkSession, ask: Ask) -> DataFrame:
    stream = Nexmark(events_per_second=ask.events_per_second, first_time=ask.start)
    return GeneratedStreams(spark, stream, ask.list_options()).read("bids")


class _Noting:
    """Streams that note which columns a query asks for."""

    def __init__(self, streams: GeneratedStreams) -> None:
        self.streams = streams
        self.wanted: dict[str, Sequence[str]] = {}

    def read(self, kind: str, *columns: str) -> DataFrame:
        self.wanted[kind] = columns or tuple(COLUMNS[kind])
        return self.streams.read(kind, *columns)


def find_columns(spark: SparkSession, number: int) -> Wanted:
    """Find the columns of each kind that a query reads."""
    noting = _Noting(GeneratedStreams(spark, Nexmark(), {"profile": "constant:1", "start": "1"}))
    query_of(number)(noting, Windows())
    return noting.wanted


def _describe_method(effort: QueryEffort) -> list[str]:
    shares = " then ".join(f"{share:.0%}" for share in effort.shares)
    return [
        "records are events of all kinds: a query that reads bids alone is given 92 rows for 100 of them",
        "latency is from a record's offer to the commit of its batch; batches follow each other at once",
        f"capacity is the median of {effort.batches} batches of about {effort.batch_seconds:g} s, with fixed "
        f"costs; offered is {shares} of it for {effort.pace.seconds:g} s",
        "generator share: processor time that making a query's columns takes at its capacity, of both cores",
    ]


READS = {1: 0.92, 2: 0.92, 3: 0.08, 5: 0.92, 8: 0.08, 11: 0.92}
"""Query → share of all events that it reads: bids, or persons and auctions."""
SHAPE = ClusterShape(executors=5, cores=2, name="penstock bench convergence", log_level="OFF")
INITIAL_EXECUTORS = (1, SHAPE.executors)
EVENTS_PER_SECOND = 200
SLOTS_OF_SERVICE = {1: 2.0, 2: 3.0, 3: 4.0, 5: 5.0, 8: 3.5, 11: 6.0}
"""Query → slots that service alone keeps busy; fixed costs and whole waves of tasks ask for more."""
PARTITIONS = 2 * SHAPE.executors * SHAPE.cores
"""Of each source. Every size needs another number of waves; with as many partitions as slots, three executors
and four would need two waves both."""
TRIGGER_SECONDS = 5.0
WARM_UP_SECONDS, SECONDS = 20.0, 60.0
"""How long a query runs before DS2 is attached, and with it."""
SETTINGS: Mapping[str, object] = {
    **QUICK_DECISIONS,
    "policy_interval": "10s",
    "scale_down_delay": "10s",
    "max_executors": SHAPE.executors,
    "migration": False,
    "control_socket": False,
}


def bound_executors(query: int) -> tuple[int, int]:
    """Return the fewest executors whose slots serve a query, and the most that are right for it.

    One more than service needs with the default headroom is right: fixed costs and whole waves of tasks.
    """
    slots = SLOTS_OF_SERVICE[query]
    headroom = Goals().utilisation
    return math.ceil(slots / SHAPE.cores), math.ceil(slots / headroom / SHAPE.cores) + 1


@dataclass(frozen=True, slots=True)
class Convergence:
    """One query from one initial size, with the sizes decided in turn, in executors."""

    query: int
    initial: int
    decided: tuple[int, ...]
    final: int

    def make_row(self) -> Row:
        """Return the fields of the report."""
        return {
            "case": f"q{self.query} from {self.initial}",
            "query": self.query,
            "initial_executors": self.initial,
            "decided": list(self.decided),
            "steps": len(self.decided),
            "final_executors": self.final,
            "slots_of_service": SLOTS_OF_SERVICE[self.query],
            "settings": tell_settings(SETTINGS),
        }


def run_convergence(extent: Extent, progress: Progress) -> Measurement:
    """Run every query from every initial size on one cluster; quick has one query."""
    found: list[Convergence] = []
    failures: list[str] = []
    with cluster(SHAPE) as spark, scratch_directory() as scratch:
        for query in [*READS][:1] if extent.quick else READS:
            for initial in INITIAL_EXECUTORS:
                progress(f"q{query} from {initial} executors")
                with note_failure(failures, f"q{query} from {initial}"):
                    hold_executors(spark, initial)
                    found.append(_converge(spark, scratch / f"q{query}-{initial}", query, initial))
    summary = {
        f"q{query}_final_spread": float(measure_spread(mine)) for query, mine in group_by_query(found).items()
    }
    notes = [
        f"{EVENTS_PER_SECOND} events/s need slots_of_service slots; an executor has {SHAPE.cores}; what "
        "a query computes by itself beside that is small"
    ]
    return Measurement([one.make_row() for one in found], summary, notes, failures, found, extent.quick)


def group_by_query(found: Sequence[Convergence]) -> dict[int, list[Convergence]]:
    """Group the runs by query."""
    queries = dict.fromkeys(one.query for one in found)
    return {query: [one for one in found if one.query == query] for query in queries}


def measure_spread(mine: Sequence[Convergence]) -> int:
    """Return how far the final sizes of one query lie apart."""
    return max(one.final for one in mine) - min(one.final for one in mine)


def _converge(spark: SparkSession, scratch: Path, query: int, initial: int) -> Convergence:
    entry = find_workload(f"nexmark-q{query}")
    paced = Workload(entry.name, entry.summary, lambda session, ask: _build_paced(session, ask, query))
    rate = EVENTS_PER_SECOND
    ask = Ask(f"constant:{rate}", time.time(), source_partitions=PARTITIONS, events_per_second=rate)
    journal = str(scratch / "journal.db")
    with run_workload(spark, paced, ask, scratch / "checkpoint", TRIGGER_SECONDS) as started:
        await_moment(started, time.time() + WARM_UP_SECONDS)
        with attach_autopilot(spark, {**SETTINGS, "journal": journal}, "ds2"):
            await_moment(started, time.time() + SECONDS)
            final = len(executor_ids(spark))
    actions = read_size_changes(journal, spark.sparkContext.applicationId)
    return Convergence(query, initial, tuple(int(one.planned[EXECUTORS]) for one in actions), final)


def _build_paced(spark: SparkSession, ask: Ask, query: int) -> DataFrame:
    spark.conf.set("spark.sql.shuffle.partitions", ask.shuffle_partitions)
    stream = Nexmark(events_per_second=ask.events_per_second, first_time=ask.start)
    windows = Windows(watermark=2.0, longest_auction=stream.longest_auction_seconds)
    service = SLOTS_OF_SERVICE[query] / (EVENTS_PER_SECOND * READS[query])
    return query_of(query)(
        PacedStreams(GeneratedStreams(spark, stream, ask.list_options()), service), windows
    )
