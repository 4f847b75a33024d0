"""Latency while the state of Nexmark queries moves: queries 3 to 8, all at once against a bin at a time.

Each query runs on a real cluster with its state in RocksDB and its input steady. A quarter of its bins goes
from one executor to the next all at once, and back fluidly; batches are compared with those of the same
query just before. "All at once" prepares nothing, as in the benchmark of the key-count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.bench.migration import CONF, CORES, EXECUTORS, STRATEGIES, quarter
from penstock.bench.migration_rows import ALL_AT_ONCE, FLUID
from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.spark_cluster import ROCKSDB_STATE, ClusterShape, cluster, scratch_directory
from penstock.bench.spark_experiment import batches_of
from penstock.bench.spark_workload import running
from penstock.bench.traces import BatchSeen
from penstock.errors import ActionFailed, PenstockError
from penstock.migrate.bins import StateView
from penstock.migrate.planner import Assignment
from penstock.migrate.spark_migrator import SparkMigrator
from penstock.migrate.spark_placement import SparkPlacement
from penstock.migrate.spark_views import SparkViews
from penstock.migrate.strategies import schedule
from penstock.workloads.catalog import Ask, workload

QUERIES = (3, 4, 5, 6, 7, 8)
QUICK_QUERIES = (3, 5)
MOST_OVER_STEADY = 1.5
SILENCE_SECONDS = 180.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is offered, and how many batches are looked at around a migration."""

    events_per_second: int = 20_000
    trigger_seconds: float = 3.0
    bins: int = 8
    warm_batches: int = 5
    steady_batches: int = 5
    after_batches: int = 3


FULL = Effort()
QUICK = Effort(5_000, 1.5, bins=4, warm_batches=3, steady_batches=3, after_batches=1)


@dataclass(frozen=True, slots=True)
class Moved:
    """One migration of one query, between batches of the same query while nothing moved."""

    query: int
    system: str
    start: float
    end: float
    steady: tuple[BatchSeen, ...]
    batches: tuple[BatchSeen, ...]
    bins: int
    bytes_moved: int
    note: str = ""

    @property
    def steady_seconds(self) -> float:
        """The usual batch."""
        return median(batch.seconds for batch in self.steady)

    @property
    def over_steady(self) -> float:
        """How many usual batches the slowest one took."""
        return max(batch.seconds for batch in self.batches) / self.steady_seconds

    def row(self) -> Row:
        """The fields of the report."""
        return {
            "case": f"q{self.query}",
            "system": self.system,
            "steady_median_ms": 1000 * self.steady_seconds,
            "max_batch_ms": 1000 * max(batch.seconds for batch in self.batches),
            "max_over_steady": self.over_steady,
            "steady_max_over_median": max(batch.seconds for batch in self.steady) / self.steady_seconds,
            "duration_s": self.end - self.start,
            "batches": len(self.batches),
            "bins_moved": self.bins,
            "bytes_moved": self.bytes_moved,
        }


def run(quick: bool, progress: Progress) -> BenchReport:
    """Query after query on one cluster."""
    effort = QUICK if quick else FULL
    moved, notes = measured(QUICK_QUERIES if quick else QUERIES, effort, progress)
    rows = [one.row() for one in moved]
    fluid = [row["max_over_steady"] for row in rows if row["system"] == FLUID]
    targets = [
        Target("fluid max_over_steady, the most", f"<= {MOST_OVER_STEADY}", max(fluid, default=None)),
        Target("migrations that could not be measured", "== 0", float(len(notes))),
    ]
    notes += [f"q{one.query}, {one.system}: {one.note}" for one in moved if one.note]
    notes.append(
        f"{effort.events_per_second:,} events/s in batches of {effort.trigger_seconds:g} s, with "
        f"{effort.bins} bins a stage; a batch that closes windows is longer, see steady_max_over_median"
    )
    return BenchReport("nexmark-migration", summary(rows), rows, targets, {}, notes)


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """The slowest batch of each query and system over its steady one."""
    names = {FLUID: "fluid", ALL_AT_ONCE: "all_at_once"}
    return {f"{row['case']}_{names[row['system']]}_max_over_steady": row["max_over_steady"] for row in rows}


def measured(queries: Sequence[int], effort: Effort, progress: Progress) -> tuple[list[Moved], list[str]]:
    """What each query went through; one that could not be measured is a note."""
    found: list[Moved] = []
    notes: list[str] = []
    shape = ClusterShape(EXECUTORS, CORES, 2048, "penstock bench nexmark-migration", "OFF", CONF)
    with cluster(shape) as spark, scratch_directory() as scratch:
        for number in queries:
            try:
                found += _measured(spark, scratch, number, effort, progress)
            except (PenstockError, PySparkException, Py4JError) as problem:
                notes.append(f"q{number} could not be measured: {first_line(problem)}")
    return found, notes


def first_line(problem: Exception) -> str:
    """What went wrong, without the stack of the JVM."""
    return str(problem).strip().partition("\n")[0] or type(problem).__name__


def _measured(
    spark: SparkSession, scratch: Path, number: int, effort: Effort, progress: Progress
) -> list[Moved]:
    entry = replace(workload(f"nexmark-q{number}"), state_store=ROCKSDB_STATE)
    rate = effort.events_per_second
    ask = Ask(
        f"constant:{rate}",
        time.time(),
        partitions=2,
        shuffle_partitions=effort.bins,
        events_per_second=rate,
        most_per_batch=round(rate * effort.trigger_seconds),
    )
    with running(spark, entry, ask, scratch / f"q{number}", effort.trigger_seconds) as query:
        progress(f"q{number}: state grows")
        experiment = _Experiment(spark, query, number, effort)
        experiment.next_batches(effort.warm_batches)
        away, back = experiment.there_and_back()
        progress(f"q{number}: {len(away)} bins at once")
        first = experiment.migrate(away, ALL_AT_ONCE)
        progress(f"q{number}: {len(back)} bins one by one")
        return [first, experiment.migrate(back, FLUID)]


class _Experiment:
    """One running query whose bins are moved."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, number: int, effort: Effort) -> None:
        self._query, self._number, self._effort = query, number, effort
        self._views = SparkViews(spark, SparkPlacement(spark), lambda _: ())

    def there_and_back(self) -> tuple[list[Assignment], list[Assignment]]:
        """A quarter of the bins to another executor, and the same home again."""
        away = quarter(self._view())
        return away, [Assignment(one.bin, one.target, one.source) for one in away]

    def migrate(self, assignments: Sequence[Assignment], system: str) -> Moved:
        """Steady batches, the migration, and a few more."""
        steady = self.next_batches(self._effort.steady_batches)
        view, settings = self._view(), STRATEGIES[system]
        migrator = SparkMigrator(self._views)
        start = time.time()
        migrator.begin([schedule(view, assignments, settings.strategy, settings)], settings)
        while (outcomes := migrator.poll()) is None:
            self._check()
            time.sleep(0.1)
        end = time.time()
        self.next_batches(self._effort.after_batches)
        (outcome,) = outcomes
        sizes = {state.bin: state.bytes for state in view.bins}
        whole = len(outcome.moved) == len(assignments)
        return Moved(
            query=self._number,
            system=system,
            start=start,
            end=end,
            steady=tuple(steady),
            batches=tuple(batch for batch in batches_of(self._query) if batch.end >= start),
            bins=len(outcome.moved),
            bytes_moved=sum(sizes[move.bin] for move in outcome.moved),
            note="" if whole else f"{len(outcome.moved)} of {len(assignments)} moved: {outcome.detail}",
        )

    def next_batches(self, count: int) -> list[BatchSeen]:
        """The next so many batches that have ended."""
        begun, deadline = time.time(), time.monotonic() + SILENCE_SECONDS
        while True:
            self._check()
            fresh = [batch for batch in batches_of(self._query) if batch.start >= begun]
            if len(fresh) >= count:
                return fresh
            if time.monotonic() > deadline:
                raise ActionFailed(f"only {len(fresh)} batches in {SILENCE_SECONDS:g} s")
            time.sleep(0.1)

    def _view(self) -> StateView:
        (view,) = self._views.full_views()
        return view

    def _check(self) -> None:
        if not self._query.isActive:
            raise ActionFailed(f"the query ended: {str(self._query.exception()).splitlines()[0]}")
