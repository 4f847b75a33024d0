"""What it costs a running query when its state moves: fluid, batched, all at once, and Spark by itself.

Key-count on a real cluster, its state preloaded, its input steady. In the main case one query lives through
all systems in turn: a quarter of its bins goes to another executor and comes back. Batches are compared with
those of the same query just before. Sweeps over bins and keys have a query each.

"All at once" is the move that any engine can make: no snapshot is prepared, so the new executor replays what
was changed since the last one that Spark made by itself. It comes before the strategies that ask for
snapshots, which it would find fresh otherwise. "Prepared" gets the same snapshots as fluid does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from penstock.bench.memory import MemorySampler
from penstock.bench.migration_page import write_timeline
from penstock.bench.migration_rows import (
    ADDED,
    ALL_AT_ONCE,
    BATCHED,
    FLUID,
    KILLED,
    PREPARED,
    REPARTITION,
    Phase,
    summary,
    targets,
)
from penstock.bench.report import BenchReport
from penstock.bench.spark_cluster import (
    ClusterShape,
    cluster,
    executor_ids,
    hold_executors,
    kill_executor,
    scratch_directory,
)
from penstock.bench.spark_experiment import batches_of
from penstock.bench.traces import BatchSeen
from penstock.errors import ActionFailed, PenstockError
from penstock.migrate.bins import StateView
from penstock.migrate.migration_settings import MigrationSettings
from penstock.migrate.plan import Plan, Strategy
from penstock.migrate.planner import Assignment
from penstock.migrate.spark_migrator import SparkMigrator
from penstock.migrate.spark_placement import SparkPlacement
from penstock.migrate.spark_repartition import repartition_checkpoint
from penstock.migrate.spark_views import SparkViews
from penstock.migrate.strategies import schedule
from penstock.workloads.key_count import KeyCount, start_key_count

CONF = {
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.maintenanceInterval": "60s",
    "spark.sql.streaming.numRecentProgressUpdates": "2000",
}
"""As Spark has it, with changelogs, which large states use; a snapshot then comes every ten batches or so."""
EXECUTORS, CORES = 3, 2
PAGE = Path("artifacts") / "migration.html"
STRATEGIES = {
    ALL_AT_ONCE: MigrationSettings.of(Strategy.ALL_AT_ONCE),
    BATCHED: MigrationSettings.of(Strategy.BATCHED, most_bins_per_batch=2),
    FLUID: MigrationSettings.of(Strategy.FLUID),
    PREPARED: MigrationSettings.of(Strategy.ALL_AT_ONCE, prepare=True),
}
"""In the order in which they are measured."""
PUBLISHED = {"megaphone_all_at_once_max_latency_over_fluid": "10 to 100"}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One query: its state, its input, and which systems it lives through."""

    keys: int
    bins: int
    systems: tuple[str, ...]
    records_per_second: int = 10_000
    trigger_seconds: float = 3.0
    steady_batches: int = 12
    after_batches: int = 4
    back: bool = True
    """Whether the bins come back, too; what a move costs shows on the way out as well."""


MAIN = Case(3_000_000, 16, (ADDED, *STRATEGIES, KILLED, REPARTITION))
SWEEPS = (
    Case(750_000, 16, (ALL_AT_ONCE, FLUID), steady_batches=8, after_batches=2, back=False),
    Case(3_000_000, 64, (FLUID,), 3_000, 8.0, 6, 2, back=False),
    Case(12_000_000, 64, (ALL_AT_ONCE, BATCHED, FLUID), 3_000, 8.0, 6, 2, back=False),
    Case(3_000_000, 256, (FLUID,), 1_000, 25.0, 3, 1, back=False),
)
"""More bins make longer batches, of 50 ms a bin or so: the trigger leaves room for them."""
QUICK = Case(200_000, 8, (ADDED, ALL_AT_ONCE, FLUID), 5_000, 3.0, steady_batches=5, after_batches=2)


def run(quick: bool, progress: Progress) -> BenchReport:
    """All cases one after the other; quick has a small one with two strategies."""
    phases, notes = measured((QUICK,) if quick else (MAIN, *SWEEPS), progress)
    notes += [f"{phase.case}, {phase.system}: {phase.note}" for phase in phases if phase.note]
    notes.append(f"batch latency over time: {write_timeline(phases, PAGE)}")
    figures = summary(phases)
    return BenchReport(
        "migration", figures, [phase.row() for phase in phases], targets(figures), dict(PUBLISHED), notes
    )


def measured(cases: Sequence[Case], progress: Progress) -> tuple[list[Phase], list[str]]:
    """What each case went through; one that could not be measured is a note."""
    phases: list[Phase] = []
    notes: list[str] = []
    for case in cases:
        try:
            phases += _Experiment(case, progress).run()
        except (PenstockError, PySparkException, Py4JError) as problem:
            # an hour of other cases must not be lost with this one
            reason = str(problem).strip().partition("\n")[0] or type(problem).__name__
            notes.append(f"{case.keys:,} keys in {case.bins} bins could not be measured: {reason}")
    return phases, notes


@dataclass
class _Experiment:
    """One query, from its preload to the last system."""

    case: Case
    progress: Progress
    phases: list[Phase] = field(default_factory=list)

    def run(self) -> list[Phase]:
        """Preload, then one system after the other on the same query."""
        shape = ClusterShape(EXECUTORS, CORES, 2048, "penstock bench migration", "OFF", CONF)
        with cluster(shape) as spark, scratch_directory() as scratch:
            self.spark, self.checkpoint = spark, str(scratch / "checkpoint")
            if ADDED in self.case.systems:
                hold_executors(spark, EXECUTORS - 1)
            self.query = self._start()
            self._preload()
            self.views = SparkViews(spark, SparkPlacement(spark), lambda query: ())
            self.migrator = SparkMigrator(self.views)
            with MemorySampler() as self.memory:
                for system in self.case.systems:
                    self._measure(system)
                    if system == ADDED:
                        # from here on all three are to take part
                        newcomer = max(executor_ids(spark), key=int)
                        self._migrate(spread(self._view(), newcomer), ALL_AT_ONCE)
            self.query.stop()
        return self.phases

    def _start(self) -> StreamingQuery:
        workload = KeyCount(
            f"constant:{self.case.records_per_second}",
            self.case.keys,
            bins=self.case.bins,
            max_records_per_batch=round(self.case.records_per_second * self.case.trigger_seconds),
        )
        return start_key_count(
            self.spark, workload, self.checkpoint, trigger_seconds=self.case.trigger_seconds
        )

    def _preload(self) -> None:
        """Until the state is there and batches are of their usual size."""
        self.progress(f"preloading {self.case.keys:,} keys into {self.case.bins} bins")
        usual = self.case.records_per_second * self.case.trigger_seconds
        deadline = time.monotonic() + 900
        while True:
            self._check()
            seen = batches_of(self.query)
            if (
                len(seen) >= 5
                and seen[-1].records_read >= self.case.keys + usual
                and seen[-1].records <= usual
            ):
                return
            if time.monotonic() > deadline:
                raise ActionFailed("the state was not there after 15 minutes")
            time.sleep(0.5)

    def _measure(self, system: str) -> None:
        steady = self._await(self.case.steady_batches)
        steady_rss = fmean(self.memory.since(steady[0].start) or [0.0])
        self.progress(f"{self.case.keys:,} keys, {self.case.bins} bins: {system}")
        start = time.time()
        moved, note = self._perform(system)
        end = time.time()
        after = self._await(self.case.after_batches)
        batches = tuple(one for one in batches_of(self.query) if one.end >= start and one.start <= end)
        batches += tuple(one for one in after if one.start > end)
        if system == REPARTITION:
            # from the stop to the end of the first batch nothing is put out: one long batch to whoever waits
            batches = (BatchSeen(start, batches[0].end - start, batches[0].records, 0), *batches[1:])
        self.phases.append(
            Phase(
                self.case.keys,
                self.case.bins,
                system,
                start,
                max(end, batches[-1].end),
                tuple(steady),
                batches,
                moved,
                steady_rss,
                max(self.memory.since(start) or [0.0]),
                note,
                self.memory.course(steady[0].start),
            )
        )

    def _perform(self, system: str) -> tuple[int, str]:
        if system in STRATEGIES:
            return self._away_and_back(system)
        if system == ADDED:
            return self._add()
        if system == KILLED:
            return self._kill()
        return self._repartition()

    def _away_and_back(self, system: str) -> tuple[int, str]:
        view = self._view()
        away = quarter(view)
        back = [Assignment(one.bin, one.target, one.source) for one in away]
        sizes = {state.bin: state.bytes for state in view.bins}
        note = self._migrate(away, system)
        moved = sum(sizes[one.bin] for one in away)
        if not self.case.back:
            return moved, note
        self._await(self.case.after_batches)
        return 2 * moved, note + self._migrate(back, system)

    def _migrate(self, assignments: Sequence[Assignment], system: str) -> str:
        settings = STRATEGIES[system]
        view = self._view()
        plan: Plan = schedule(view, assignments, settings.strategy, settings)
        self.migrator.begin([plan], settings)
        while (outcomes := self.migrator.poll()) is None:
            self._check()
            time.sleep(0.1)
        (outcome,) = outcomes
        complete = len(outcome.moved) == len(assignments)
        return "" if complete else f"{len(outcome.moved)} of {len(assignments)} moved: {outcome.detail}; "

    def _add(self) -> tuple[int, str]:
        """One more executor, and nothing else: what Spark does with it by itself."""
        hold_executors(self.spark, EXECUTORS)
        self._await(2 * self.case.after_batches)
        newcomer = max(executor_ids(self.spark), key=int)
        share = list(self._view().placement().values()).count(newcomer)
        waited = 2 * self.case.after_batches
        return 0, f"the new executor has {share} of {self.case.bins} bins after {waited} batches"

    def _kill(self) -> tuple[int, str]:
        view = self._view()
        victim = max(executor_ids(self.spark), key=int)
        lost = sum(state.bytes for state in view.bins if state.worker == victim)
        kill_executor(self.spark, victim)
        return lost, f"the executor had {list(view.placement().values()).count(victim)} bins"

    def _repartition(self) -> tuple[int, str]:
        """Stop, repartition to as many bins and a half more, start again."""
        size = sum(state.bytes for state in self._view().bins)
        while self.query.status["isTriggerActive"]:
            time.sleep(0.01)
        self.query.stop()
        bins = self.case.bins * 3 // 2
        repartition_checkpoint(self.spark, self.checkpoint, bins)
        self.query = self._start()
        self._await(1)
        return size, f"to {bins} bins, with the query stopped"

    def _view(self) -> StateView:
        (view,) = self.views.full_views()
        return view

    def _await(self, count: int) -> list[BatchSeen]:
        """The next so many batches that have ended."""
        begun = time.time()
        while True:
            self._check()
            fresh = [batch for batch in batches_of(self.query) if batch.start >= begun]
            if len(fresh) >= count:
                return fresh
            time.sleep(0.1)

    def _check(self) -> None:
        if self.query.exception() is not None:
            raise ActionFailed(f"the query failed: {str(self.query.exception()).splitlines()[0]}")


def quarter(view: StateView) -> list[Assignment]:
    """A quarter of the bins, off the executor that has most of them, to the next one."""
    at = view.placement()
    workers = sorted(worker.worker for worker in view.workers)
    held = {worker: [bin_ for bin_ in sorted(at) if at[bin_] == worker] for worker in workers}
    source = max(workers, key=lambda worker: len(held[worker]))
    target = workers[(workers.index(source) + 1) % len(workers)]
    return [Assignment(bin_, source, target) for bin_ in held[source][: max(1, len(at) // 4)]]


def spread(view: StateView, newcomer: str) -> list[Assignment]:
    """Every third bin to the newcomer."""
    at = view.placement()
    return [Assignment(bin_, at[bin_], newcomer) for bin_ in sorted(at)[::3] if at[bin_] != newcomer]
