"""State that moves while a query runs: migrations, the batches around them, and Nexmark queries 3 to 8.

Each query runs on a real cluster with its state in RocksDB and its input steady. A quarter of its bins goes
from one executor to the next all at once, and back fluidly; batches are compared with those of the same
query just before. "All at once" prepares nothing, as in the experiment with the key-count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow.moves import Move, Strategy
from penstock.migrate.bins import StateView
from penstock.migrate.migration import MigrationOutcome
from penstock.migrate.plan import schedule
from penstock.migrate.planner import Assignment
from penstock.migrate.settings import MigrationSettings
from penstock.migrate.spark_migrator import SparkMigrator
from penstock.migrate.spark_placement import SparkPlacement
from penstock.migrate.spark_views import SparkViews
from penstock_lab.experiments.batches import BatchSeen
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row
from penstock_lab.experiments.spark_query import (
    await_batches,
    check_query,
    list_batches,
    note_failure,
    run_workload,
)
from penstock_lab.ground.spark_cluster import ClusterShape, cluster, scratch_directory
from penstock_lab.workloads.catalog import Ask, find_workload
from penstock_lab.workloads.state_stores import ROCKSDB_STATE

FLUID, BATCHED, OPTIMIZED = "fluid", "batched", "optimized"
ALL_AT_ONCE, PREPARED = "all-at-once", "all-at-once-prepared"
STRATEGIES = {
    ALL_AT_ONCE: MigrationSettings.of(Strategy.ALL_AT_ONCE),
    BATCHED: MigrationSettings.of(Strategy.BATCHED, bins_per_batch=2),
    OPTIMIZED: MigrationSettings.of(Strategy.OPTIMIZED),
    FLUID: MigrationSettings.of(Strategy.FLUID),
    PREPARED: MigrationSettings.of(Strategy.ALL_AT_ONCE, prepare=True),
}
"""In the order in which they are measured."""
CONF = {
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.maintenanceInterval": "60s",
    "spark.sql.streaming.numRecentProgressUpdates": "2000",
}
"""Spark's defaults, with changelogs as large states use them: a snapshot every ten batches or so."""
EXECUTORS, CORES = 3, 2
QUERIES, QUICK_QUERIES = (3, 4, 5, 6, 7, 8), (3, 5)


@dataclass(frozen=True, slots=True)
class Phase:
    """One system at work from start to end, after batches of the same query while nothing moved."""

    case: str
    system: str
    start: float
    end: float
    steady: tuple[BatchSeen, ...]
    batches: tuple[BatchSeen, ...]
    bytes_moved: int = 0
    note: str = ""
    """Bins that did not move, or another remark."""

    @property
    def steady_seconds(self) -> float:
        """The usual batch."""
        return median(batch.seconds for batch in self.steady)

    @property
    def longest_seconds(self) -> float:
        """The slowest batch."""
        return max(batch.seconds for batch in self.batches)

    @property
    def over_steady(self) -> float:
        """The slowest batch in usual batches."""
        return self.longest_seconds / self.steady_seconds

    def make_row(self) -> Row:
        """Return the fields of the report."""
        return {
            "case": self.case,
            "system": self.system,
            "steady_median_ms": 1000 * self.steady_seconds,
            "max_batch_ms": 1000 * self.longest_seconds,
            "max_over_steady": self.over_steady,
            "duration_s": self.end - self.start,
            "batches": len(self.batches),
            "bytes_moved": self.bytes_moved,
            "steady_max_over_median": max(b.seconds for b in self.steady) / self.steady_seconds,
        }


def migrate_bins(
    query: StreamingQuery,
    views: SparkViews,
    view: StateView,
    assignments: Sequence[Assignment],
    settings: MigrationSettings,
) -> MigrationOutcome:
    """Move bins of the running query as the settings say, and wait for the end."""
    migrator = SparkMigrator(views)
    migrator.begin([schedule(view, assignments, settings.strategy, settings)], settings)
    while (outcomes := migrator.poll()) is None:
        check_query(query)
        time.sleep(0.1)
    (outcome,) = outcomes
    return outcome


def sum_bytes(view: StateView, moves: Iterable[Assignment | Move]) -> int:
    """Add up the sizes of the bins that move."""
    sizes = {state.bin: state.bytes for state in view.bins}
    return sum(sizes[move.bin] for move in moves)


def describe_rest(outcome: MigrationOutcome, asked: int) -> str:
    """Say how many bins did not move, and why; empty if all did."""
    moved = len(outcome.moved)
    return "" if moved == asked else f"{moved} of {asked} moved: {outcome.detail}"


def choose_quarter(view: StateView) -> list[Assignment]:
    """Choose a quarter of the bins, from the executor that has most of them, for the next executor."""
    at = view.placement()
    workers = sorted(worker.worker for worker in view.workers)
    held = {worker: [bin_ for bin_ in sorted(at) if at[bin_] == worker] for worker in workers}
    source = max(workers, key=lambda worker: len(held[worker]))
    target = workers[(workers.index(source) + 1) % len(workers)]
    return [Assignment(bin_, source, target) for bin_ in held[source][: max(1, len(at) // 4)]]


def choose_thirds(view: StateView, newcomer: str) -> list[Assignment]:
    """Choose every third bin for a new executor."""
    at = view.placement()
    return [Assignment(bin_, at[bin_], newcomer) for bin_ in sorted(at)[::3] if at[bin_] != newcomer]


def reverse_moves(assignments: Sequence[Assignment]) -> list[Assignment]:
    """Return the same bins on their way home."""
    return [Assignment(one.bin, one.target, one.source) for one in assignments]


@dataclass(frozen=True, slots=True)
class MoveEffort:
    """The load, and the batches that are looked at around a migration."""

    events_per_second: int = 20_000
    trigger_seconds: float = 3.0
    bins: int = 8
    warm_batches: int = 5
    steady_batches: int = 5
    after_batches: int = 3


QUICK = MoveEffort(5_000, 1.5, bins=4, warm_batches=3, steady_batches=3, after_batches=1)


@dataclass(frozen=True, slots=True)
class QueryPhase(Phase):
    """One migration of one query."""

    bins: int = 0
    """Bins that moved."""

    def make_row(self) -> Row:
        """Return the fields of the report, with the bins that moved."""
        return {**Phase.make_row(self), "bins_moved": self.bins}


def run(extent: Extent, progress: Progress) -> Measurement:
    """Move the state of query after query on one cluster."""
    effort = QUICK if extent.quick else MoveEffort()
    phases: list[QueryPhase] = []
    failures: list[str] = []
    shape = ClusterShape(EXECUTORS, CORES, 2048, "penstock bench nexmark-migration", "OFF", CONF)
    with cluster(shape) as spark, scratch_directory() as scratch:
        for number in QUICK_QUERIES if extent.quick else QUERIES:
            with note_failure(failures, f"q{number}"):
                phases += _measure_query(spark, scratch, number, effort, progress)
    notes = [f"{phase.case}, {phase.system}: {phase.note}" for phase in phases if phase.note]
    notes.append(
        f"{effort.events_per_second:,} events/s in batches of {effort.trigger_seconds:g} s, with "
        f"{effort.bins} bins a stage; a batch that closes windows is longer, see steady_max_over_median"
    )
    rows = [phase.make_row() for phase in phases]
    summary = {
        f"{row['case']}_{row['system'].replace('-', '_')}_max_over_steady": row["max_over_steady"]
        for row in rows
    }
    return Measurement(rows, summary, notes, failures, phases, extent.quick)


def _measure_query(
    spark: SparkSession, scratch: Path, number: int, effort: MoveEffort, progress: Progress
) -> list[QueryPhase]:
    entry = replace(find_workload(f"nexmark-q{number}"), state_store=ROCKSDB_STATE)
    rate = effort.events_per_second
    ask = Ask(
        f"constant:{rate}",
        time.time(),
        shuffle_partitions=effort.bins,
        events_per_second=rate,
        max_records_per_batch=round(rate * effort.trigger_seconds),
    )
    with run_workload(spark, entry, ask, scratch / f"q{number}", effort.trigger_seconds) as query:
        progress(f"q{number}: state grows")
        await_batches(query, effort.warm_batches)
        views = SparkViews(spark, SparkPlacement(spark), lambda _: ())
        (view,) = views.full_views()
        away = choose_quarter(view)
        progress(f"q{number}: {len(away)} bins at once")
        first = _migrate(query, views, away, ALL_AT_ONCE, effort)
        progress(f"q{number}: {len(away)} bins one by one")
        return [first, _migrate(query, views, reverse_moves(away), FLUID, effort)]


def _migrate(
    query: StreamingQuery, views: SparkViews, assignments: list[Assignment], system: str, effort: MoveEffort
) -> QueryPhase:
    """Watch steady batches, the migration, and a few more."""
    steady = await_batches(query, effort.steady_batches)
    (view,) = views.full_views()
    start = time.time()
    outcome = migrate_bins(query, views, view, assignments, STRATEGIES[system])
    end = time.time()
    await_batches(query, effort.after_batches)
    return QueryPhase(
        case=query.name.removeprefix("nexmark-"),
        system=system,
        start=start,
        end=end,
        steady=tuple(steady),
        batches=tuple(batch for batch in list_batches(query) if batch.end >= start),
        bytes_moved=sum_bytes(view, outcome.moved),
        note=describe_rest(outcome, len(assignments)),
        bins=len(outcome.moved),
    )
