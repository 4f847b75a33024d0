"""DS2's table 4 on a real cluster, as far as its slots reach: six Nexmark queries from two initial sizes.

Events take a service time in a slot before the query sees them, so that the slots that a query needs are
known and more of them than the machine has cores do not get in each other's way. Every query is offered the
same load of slots, once on the fewest executors and once on all; DS2 is attached when it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.attach import attach
from penstock.bench.nexmark_migration import first_line
from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.spark_cluster import (
    ClusterShape,
    cluster,
    executor_ids,
    hold_executors,
    scratch_directory,
)
from penstock.bench.spark_workload import running
from penstock.dataflow.window import EXECUTORS
from penstock.errors import ActionFailed, PenstockError
from penstock.journal.store import journal_at
from penstock.workloads.catalog import Ask, Workload, workload
from penstock.workloads.nexmark import Nexmark
from penstock.workloads.nexmark_queries import Windows, query_of
from penstock.workloads.nexmark_streams import GeneratedStreams, PacedStreams

QUERIES = (1, 2, 3, 5, 8, 11)
READS = {1: 0.92, 2: 0.92, 3: 0.08, 5: 0.92, 8: 0.08, 11: 0.92}
"""Query → share of all events that it reads: bids, or persons and auctions."""
SHAPE = ClusterShape(executors=5, cores=2, name="penstock bench convergence", log_level="OFF")
INITIAL_EXECUTORS = (1, SHAPE.executors)
EVENTS_PER_SECOND = 200
SLOTS_OF_SERVICE = 3.0
"""Slots that service alone keeps busy; fixed costs and whole waves of tasks ask for more."""
PARTITIONS = 2 * SHAPE.executors * SHAPE.cores
"""Of each source, so that every size has its own number of waves: with as many partitions as slots, four
executors take two waves as three do, and a need near the edge of three is met by three or by five."""
TRIGGER_SECONDS = 5.0
MOST_STEPS = 3
"""The paper's most, of 36 runs."""
SETTINGS: Mapping[str, object] = {
    "policy_interval": "10s",
    "warm_up_intervals": 1,
    "activation_intervals": 1,
    "scale_down_delay": "10s",
    "largest_step_down": 1.0,
    "max_executors": SHAPE.executors,
    "migration": False,
    "control_socket": False,
}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Length:
    """How long a query runs before DS2 is attached, and with it."""

    warm_up_seconds: float = 20.0
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Convergence:
    """One query from one initial size: the sizes that were decided in turn, in executors."""

    query: int
    initial: int
    decided: tuple[int, ...]
    final: int

    def row(self) -> Row:
        """The fields of the report."""
        return {
            "case": f"q{self.query} from {self.initial}",
            "query": self.query,
            "initial_executors": self.initial,
            "decided": list(self.decided),
            "steps": len(self.decided),
            "final_executors": self.final,
        }


def run(quick: bool, progress: Progress) -> BenchReport:
    """Every query from every initial size; quick has one query."""
    found, notes = measured(QUERIES[:1] if quick else QUERIES, Length(), progress)
    rows = [one.row() for one in found]
    apart = [float(spread(mine)) for mine in by_query(found).values()]
    targets = [
        Target(
            "most steps of a run", f"<= {MOST_STEPS}", max((len(one.decided) for one in found), default=None)
        ),
        Target("executors between the final sizes of a query, the most", "<= 1", max(apart, default=None)),
        Target("runs that could not be measured", "== 0", float(len(notes))),
    ]
    summary = {f"q{query}_final_spread": float(spread(mine)) for query, mine in by_query(found).items()}
    notes.append(
        f"{EVENTS_PER_SECOND} events/s need {SLOTS_OF_SERVICE:g} slots of service; an executor has "
        f"{SHAPE.cores} slots"
    )
    return BenchReport("convergence", summary, rows, targets, {"ds2_most_steps": MOST_STEPS}, notes)


def by_query(found: Sequence[Convergence]) -> dict[int, list[Convergence]]:
    """The runs of each query."""
    queries = dict.fromkeys(one.query for one in found)
    return {query: [one for one in found if one.query == query] for query in queries}


def spread(mine: Sequence[Convergence]) -> int:
    """How far the final sizes of one query lie apart."""
    return max(one.final for one in mine) - min(one.final for one in mine)


def measured(
    queries: Sequence[int], length: Length, progress: Progress
) -> tuple[list[Convergence], list[str]]:
    """All runs on one cluster; one that failed is a note."""
    found: list[Convergence] = []
    notes: list[str] = []
    with cluster(SHAPE) as spark, scratch_directory() as scratch:
        for query in queries:
            for initial in INITIAL_EXECUTORS:
                progress(f"q{query} from {initial} executors")
                try:
                    hold_executors(spark, initial)
                    found.append(_converged(spark, scratch / f"q{query}-{initial}", query, initial, length))
                except (PenstockError, PySparkException, Py4JError) as problem:
                    notes.append(f"q{query} from {initial} could not be measured: {first_line(problem)}")
    return found, notes


def _converged(spark: SparkSession, scratch: Path, query: int, initial: int, length: Length) -> Convergence:
    entry = workload(f"nexmark-q{query}")
    paced = Workload(entry.name, entry.summary, lambda session, ask: _paced(session, ask, query))
    ask = Ask(
        f"constant:{EVENTS_PER_SECOND}",
        time.time(),
        partitions=PARTITIONS,
        events_per_second=EVENTS_PER_SECOND,
    )
    journal = str(scratch / "journal.db")
    with running(spark, paced, ask, scratch / "checkpoint", TRIGGER_SECONDS) as started:
        _sleep(started, length.warm_up_seconds)
        with _attached(spark, journal):
            _sleep(started, length.seconds)
            final = len(executor_ids(spark))
    return Convergence(query, initial, _decided(journal, spark.sparkContext.applicationId), final)


def _paced(spark: SparkSession, ask: Ask, query: int) -> DataFrame:
    spark.conf.set("spark.sql.shuffle.partitions", ask.shuffle_partitions)
    stream = Nexmark(events_per_second=ask.events_per_second, first_time=ask.start)
    windows = Windows(watermark=2.0, longest_auction=stream.longest_auction_seconds)
    service = SLOTS_OF_SERVICE / (EVENTS_PER_SECOND * READS[query])
    return query_of(query)(PacedStreams(GeneratedStreams(spark, stream, ask.load()), service), windows)


@contextmanager
def _attached(spark: SparkSession, journal: str) -> Iterator[None]:
    autopilot = attach(spark, policy="ds2", settings={**SETTINGS, "journal": journal})
    try:
        yield
    finally:
        autopilot.detach()
        autopilot.ended_within(30.0)


def _decided(path: str, application: str) -> tuple[int, ...]:
    journal = journal_at(path)
    try:
        planned = [action.planned for action in journal.actions(application)]
    finally:
        journal.close()
    return tuple(int(sizes[EXECUTORS]) for sizes in planned if EXECUTORS in sizes)


def _sleep(query: StreamingQuery, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not query.isActive:
            raise ActionFailed(f"the query ended: {str(query.exception()).splitlines()[0]}")
        time.sleep(0.5)
