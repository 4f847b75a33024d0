"""The key-count while its state moves: by each strategy, and by Spark's own means.

The query runs on a real cluster, its state preloaded, its input steady. In the main case one query lives
through all systems in turn: a quarter of its bins goes to another executor and comes back. Batches are
compared with those of the same query just before. Sweeps over bins and keys have a query each.

"All at once" is the move that any engine can make: no snapshot is prepared, so the new executor replays what
was changed since the last one that Spark made by itself. It runs before the strategies that ask for
snapshots, because it would find theirs. "Prepared" gets the same snapshots as fluid does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from pyspark.sql.streaming.query import StreamingQuery

from penstock.migrate.bins import StateView
from penstock.migrate.planner import Assignment
from penstock.migrate.spark_placement import SparkPlacement
from penstock.migrate.spark_repartition import repartition_checkpoint
from penstock.migrate.spark_views import SparkViews
from penstock_lab.experiments.batches import BatchSeen
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row
from penstock_lab.experiments.moving.queries import (
    ALL_AT_ONCE,
    BATCHED,
    CONF,
    CORES,
    EXECUTORS,
    FLUID,
    PREPARED,
    STRATEGIES,
    Phase,
    choose_quarter,
    choose_thirds,
    describe_rest,
    migrate_bins,
    reverse_moves,
    sum_bytes,
)
from penstock_lab.experiments.spark_query import (
    await_batches,
    await_state,
    list_batches,
    note_failure,
)
from penstock_lab.ground.processes import MemorySampler
from penstock_lab.ground.spark_cluster import (
    ClusterShape,
    cluster,
    executor_ids,
    hold_executors,
    kill_executor,
    scratch_directory,
)
from penstock_lab.workloads.key_count import KeyCount, build_key_count
from penstock_lab.workloads.source import start_counts

ADDED, KILLED, REPARTITION = "spark-added", "spark-killed", "spark-repartition"
PATIENCE_SECONDS = 900.0
OTHER_RATES = (2_500, 40_000)
"""A quarter of the usual rate and four times it: a sixteenfold range, all below what two cores can do."""


@dataclass(frozen=True, slots=True)
class MoveCase:
    """One query: its state, its input, and which systems it lives through."""

    keys: int
    bins: int
    systems: tuple[str, ...]
    records_per_second: int = 10_000
    trigger_seconds: float = 3.0
    steady_batches: int = 12
    after_batches: int = 4
    back: bool = True
    """Whether the bins come back, too; one way already shows what a move costs."""

    @property
    def name(self) -> str:
        """State size and bins."""
        return f"{self.keys:,} keys, {self.bins} bins"


BOTH = (ALL_AT_ONCE, FLUID)
MAIN = MoveCase(3_000_000, 16, (ADDED, *STRATEGIES, KILLED, REPARTITION))
SWEEPS = (
    MoveCase(750_000, 16, BOTH, steady_batches=8, after_batches=2, back=False),
    MoveCase(3_000_000, 64, (FLUID,), 3_000, 8.0, 6, 2, back=False),
    MoveCase(12_000_000, 64, (ALL_AT_ONCE, BATCHED, FLUID), 3_000, 8.0, 6, 2, back=False),
    MoveCase(3_000_000, 256, (FLUID,), 1_000, 25.0, 3, 1, back=False),
)
"""More bins make longer batches, of 50 ms a bin or so: the trigger leaves room for them."""
LOADED = MoveCase(1_500_000, 16, BOTH, steady_batches=8, after_batches=3, back=False)
"""The case that the report also runs at other loads."""
CASES: Mapping[Extent, tuple[MoveCase, ...]] = {
    Extent(): (MAIN, *SWEEPS),
    Extent(quick=True): (
        MoveCase(200_000, 8, (ADDED, *BOTH), 5_000, 3.0, steady_batches=5, after_batches=2),
    ),
    Extent(report=True): (
        replace(MAIN, systems=(ADDED, *BOTH, KILLED), steady_batches=8, after_batches=3, back=False),
        LOADED,
        MoveCase(3_000_000, 32, BOTH, 5_000, 5.0, steady_batches=6, after_batches=3, back=False),
    ),
    Extent(quick=True, report=True): (
        MoveCase(200_000, 8, BOTH, 5_000, 2.0, steady_batches=3, after_batches=1, back=False),
    ),
}
"""The report has twice the keys in as many bins, as many keys in twice the bins, and as many keys a bin.

Bins go one way in all of its cases: there and back would take twice as long whatever the state.
"""


@dataclass(frozen=True, slots=True)
class KeyCountPhase(Phase):
    """A phase of the key-count; memory is the sum over all processes of the application, in bytes."""

    keys: int = 0
    bins: int = 0
    back: bool = False
    """Whether the bins went and came back."""
    steady_rss_bytes: float = 0.0
    peak_rss_bytes: float = 0.0
    memory: tuple[tuple[float, float], ...] = ()
    """Its course from the first steady batch on, as (time, bytes)."""

    def make_row(self) -> Row:
        """Return the fields of the report, with memory and the rate during the phase."""
        seconds = self.end - self.start
        return {
            # a dataclass with slots is made anew, so that super() without arguments does not find it
            **Phase.make_row(self),
            "peak_rss_bytes": self.peak_rss_bytes,
            "steady_rss_bytes": self.steady_rss_bytes,
            "rows_per_s_during": sum(batch.records for batch in self.batches) / seconds if seconds else 0.0,
        }


@dataclass(frozen=True, slots=True)
class Moves:
    """The phases of all cases, and those of one case at each load that was tried."""

    phases: Sequence[KeyCountPhase]
    loads: Mapping[int, Sequence[KeyCountPhase]] = field(default_factory=dict)
    """Records offered a second → the phases of the same state at that rate."""


Measure = Callable[[Sequence[MoveCase], list[str], Progress], list[KeyCountPhase]]
"""Takes cases, failures to add to, and progress."""


def run(extent: Extent, progress: Progress) -> Measurement:
    """Run all cases one after the other; the report's full run also tries other loads."""
    failures: list[str] = []
    phases = measure_cases(CASES[extent], failures, progress)
    loads = measure_loads(phases, failures, progress) if extent == Extent(report=True) else {}
    return summarise(Moves(phases, loads), failures, extent.quick)


def summarise(moves: Moves, failures: list[str], quick: bool = False) -> Measurement:
    """Reduce phases to rows and figures."""
    told = [f"{phase.case}, {phase.system}: {phase.note}" for phase in moves.phases if phase.note]
    rows = [phase.make_row() for phase in moves.phases]
    return Measurement(rows, summarise_phases(moves.phases), told, failures, moves, quick)


def measure_cases(cases: Sequence[MoveCase], failures: list[str], progress: Progress) -> list[KeyCountPhase]:
    """Return what each case went through; one that fails is noted."""
    phases: list[KeyCountPhase] = []
    for case in cases:
        with note_failure(failures, f"{case.name} at {case.records_per_second:,} records/s"):
            phases += _MovingKeyCount(case, progress).run()
    return phases


def measure_loads(
    phases: Sequence[KeyCountPhase], failures: list[str], progress: Progress, measure: Measure = measure_cases
) -> dict[int, Sequence[KeyCountPhase]]:
    """Run the case that was measured at its usual rate at the other rates."""
    usual = [phase for phase in phases if phase.case == LOADED.name]
    loads: dict[int, Sequence[KeyCountPhase]] = {LOADED.records_per_second: usual}
    for rate in OTHER_RATES:
        progress(f"{rate:,} records a second")
        other = replace(LOADED, records_per_second=rate, steady_batches=6, after_batches=2)
        loads[rate] = measure([other], failures, progress)
    return {rate: found for rate, found in loads.items() if found}


def summarise_phases(phases: Sequence[KeyCountPhase]) -> dict[str, float]:
    """Return the main case's figures, one for each system."""
    main = {phase.system: phase for phase in phases if phase.case == phases[0].case} if phases else {}
    found = {f"{phase.system}_max_over_steady": phase.over_steady for phase in main.values()}
    for name, system in (("all_at_once_over_fluid", ALL_AT_ONCE), ("prepared_over_fluid", PREPARED)):
        if FLUID in main and system in main:
            found[name] = main[system].longest_seconds / main[FLUID].longest_seconds
    if FLUID in main and main[FLUID].steady_rss_bytes:
        found["fluid_rss_over_steady"] = main[FLUID].peak_rss_bytes / main[FLUID].steady_rss_bytes
    for system in (FLUID, BATCHED):
        growth = _measure_growth([phase for phase in phases if phase.system == system])
        if growth is not None:
            found[f"{system}_growth_with_bins"] = growth
    return found


def _measure_growth(phases: Sequence[KeyCountPhase]) -> float | None:
    """Compare slowest batches at the most bins with those at the fewest, at about the same keys a bin."""
    alike = [one for one in phases if 0.5 < one.keys / one.bins / (phases[0].keys / phases[0].bins) < 2]
    if len({one.bins for one in alike}) < 2:
        return None
    alike.sort(key=lambda one: one.bins)
    return alike[-1].over_steady / alike[0].over_steady


@dataclass
class _MovingKeyCount:
    """One query, from its preload to the last system."""

    case: MoveCase
    progress: Progress

    def run(self) -> list[KeyCountPhase]:
        """Preload, then one system after the other on the same query."""
        shape = ClusterShape(EXECUTORS, CORES, 2048, "penstock bench migration", "OFF", CONF)
        phases: list[KeyCountPhase] = []
        with cluster(shape) as spark, scratch_directory() as scratch:
            self.spark, self.checkpoint = spark, str(scratch / "checkpoint")
            if ADDED in self.case.systems:
                hold_executors(spark, EXECUTORS - 1)
            self.query = self._start()
            self._preload()
            self.views = SparkViews(spark, SparkPlacement(spark), lambda query: ())
            with MemorySampler() as self.memory:
                for system in self.case.systems:
                    phases.append(self._measure(system))
                    if system == ADDED:
                        # from here on all three executors take part
                        self._migrate(choose_thirds(self._view(), self._find_newest()), ALL_AT_ONCE)
            self.query.stop()
        return phases

    def _start(self) -> StreamingQuery:
        case = self.case
        most = round(case.records_per_second * case.trigger_seconds)
        load = f"constant:{case.records_per_second}"
        workload = KeyCount(load, case.keys, bins=case.bins, max_records_per_batch=most)
        counts, trigger = build_key_count(self.spark, workload), case.trigger_seconds
        return start_counts(counts, self.checkpoint, trigger_seconds=trigger, name="key-count")

    def _preload(self) -> None:
        """Wait until the state is there and batches are of their usual size."""
        self.progress(f"preloading {self.case.keys:,} keys into {self.case.bins} bins")
        usual = self.case.records_per_second * self.case.trigger_seconds

        def is_loaded() -> bool:
            seen = list_batches(self.query)
            whole = len(seen) >= 5 and seen[-1].records_read >= self.case.keys + usual
            return whole and seen[-1].records <= usual

        await_state(self.query, is_loaded, PATIENCE_SECONDS, "the state is not there")

    def _measure(self, system: str) -> KeyCountPhase:
        steady = self._await(self.case.steady_batches)
        steady_rss = fmean(self.memory.since(steady[0].start) or [0.0])
        self.progress(f"{self.case.name}: {system}")
        start = time.time()
        others = {ADDED: self._add, KILLED: self._kill, REPARTITION: self._repartition}
        moved, note = others[system]() if system in others else self._move_away_and_back(system)
        end = time.time()
        after = self._await(self.case.after_batches)
        batches = tuple(one for one in list_batches(self.query) if one.end >= start and one.start <= end)
        batches += tuple(one for one in after if one.start > end)
        if system == REPARTITION:
            # no result comes from the stop until the first batch ends: for a reader this is one long batch
            batches = (BatchSeen(start, batches[0].end - start, batches[0].records, 0), *batches[1:])
        return KeyCountPhase(
            case=self.case.name,
            system=system,
            start=start,
            end=max(end, batches[-1].end),
            steady=tuple(steady),
            batches=batches,
            bytes_moved=moved,
            note=note,
            keys=self.case.keys,
            bins=self.case.bins,
            back=self.case.back,
            steady_rss_bytes=steady_rss,
            peak_rss_bytes=max(self.memory.since(start) or [0.0]),
            memory=self.memory.course(steady[0].start),
        )

    def _move_away_and_back(self, system: str) -> tuple[int, str]:
        """Move a quarter of the bins; return the bytes that moved, and a note, as all systems do."""
        view = self._view()
        away = choose_quarter(view)
        moved, note = sum_bytes(view, away), self._migrate(away, system)
        if not self.case.back:
            return moved, note
        self._await(self.case.after_batches)
        return 2 * moved, "; ".join(filter(None, (note, self._migrate(reverse_moves(away), system))))

    def _migrate(self, assignments: Sequence[Assignment], system: str) -> str:
        outcome = migrate_bins(self.query, self.views, self._view(), assignments, STRATEGIES[system])
        return describe_rest(outcome, len(assignments))

    def _add(self) -> tuple[int, str]:
        """Add an executor and nothing else, to see what Spark does with it by itself."""
        hold_executors(self.spark, EXECUTORS)
        waited = 2 * self.case.after_batches
        self._await(waited)
        share = list(self._view().placement().values()).count(self._find_newest())
        return 0, f"the new executor has {share} of {self.case.bins} bins after {waited} batches"

    def _kill(self) -> tuple[int, str]:
        victim = self._find_newest()
        lost = [state.bytes for state in self._view().bins if state.worker == victim]
        kill_executor(self.spark, victim)
        return sum(lost), f"the executor had {len(lost)} bins"

    def _find_newest(self) -> str:
        return max(executor_ids(self.spark), key=int)

    def _repartition(self) -> tuple[int, str]:
        """Stop, repartition to half as many bins more, start again."""
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
        return await_batches(self.query, count, PATIENCE_SECONDS)
