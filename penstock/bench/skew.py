"""A key that becomes hot: what diagnosis says, what DS2 would do, and what moving bins away from it brings.

One query on a real cluster keeps counts by key in paced instances, 16 bins on four executors of one slot.
At first its bins are alike and Spark spreads them evenly; then a share of all records goes to one key. The
bin of that key holds its executor up, and the other bins there wait behind it. Diagnosis is to name it. DS2
is asked what it would do. The planner moves the neighbours away, which frees the hot bin; what the
key itself costs remains.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.bench.nexmark_migration import first_line
from penstock.bench.report import BenchReport, Target
from penstock.bench.skew_rows import Skewed, summary, targets
from penstock.bench.spark_cluster import ROCKSDB_STATE, ClusterShape, cluster, scratch_directory
from penstock.bench.spark_experiment import batches_of
from penstock.bench.traces import BatchSeen
from penstock.dataflow.critical import CriticalWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow
from penstock.decide.critical import useless
from penstock.decide.policy import Proposal, Scale
from penstock.decide.registry import make_policy
from penstock.errors import ActionFailed, PenstockError
from penstock.migrate.bins import StateView
from penstock.migrate.migration_settings import MigrationSettings
from penstock.migrate.plan import Strategy
from penstock.migrate.planner import balance
from penstock.migrate.spark_migrator import SparkMigrator
from penstock.migrate.spark_placement import SparkPlacement
from penstock.migrate.spark_views import SparkViews
from penstock.migrate.strategies import schedule
from penstock.observe.spark_source import SparkSource
from penstock.settings import Settings, load_settings
from penstock.workloads.skewed_state import SkewedState, start_skewed_state

SHARES = (0.2, 0.3, 0.5, 0.7, 0.8)
QUICK_SHARES = (0.5,)
HOT_BIN = 0
TRIGGER_SECONDS = 2.0
RECORDS_PER_BATCH = 800
SECONDS_PER_RECORD = 0.005
"""Four slot-seconds a batch: spread evenly they take a second of each of the four slots."""
MOST_SECONDS = 120.0
WATCHED_SECONDS = 20.0
"""How long what is said of a hot key is listened to: analyses rest between batches."""

Progress = Callable[[str], None]


def logged_shape(name: str) -> ClusterShape:
    """Four slots that are one executor each, with an event log where it can be read while they run."""
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": Path(_logs().name).as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB_STATE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.adaptive.enabled": "false",
    }
    return ClusterShape(4, 1, 768, name, "OFF", conf)


@cache
def _logs() -> tempfile.TemporaryDirectory[str]:
    """One directory for all clusters of this process, so that these are alike; gone when the process ends."""
    return tempfile.TemporaryDirectory(prefix="penstock-logs-")


@dataclass(frozen=True, slots=True)
class Effort:
    """How many batches are looked at in each state, and whether bins are moved."""

    even_batches: int = 4
    batches: int = 4
    move: bool = True


def run(quick: bool, progress: Progress) -> BenchReport:
    """One share after the other on one cluster."""
    efforts = dict.fromkeys(QUICK_SHARES if quick else SHARES, Effort())
    found, failures = measured(efforts, progress)
    rows = [one.row() for one in found]
    notes = [
        *failures,
        f"batches hold {RECORDS_PER_BATCH} records of {SECONDS_PER_RECORD * 1000:g} ms each; batch times "
        "hold Spark's fixed costs, least_batch_s does not",
        *(one.note() for one in found),
    ]
    missing = Target("shares that could not be measured", "== 0", float(len(failures)))
    return BenchReport("skew", summary(rows), rows, [*targets(rows), missing], {}, notes)


def measured(efforts: dict[float, Effort], progress: Progress) -> tuple[list[Skewed], list[str]]:
    """What each share of hot records did, for evidence and benchmark alike; one that failed is a note."""
    found: list[Skewed] = []
    notes: list[str] = []
    with cluster(logged_shape("penstock bench skew")) as spark, scratch_directory() as scratch:
        for share, effort in efforts.items():
            try:
                found.append(_Experiment(spark, scratch / f"{share:g}", share, effort, progress).run())
            except (PenstockError, PySparkException, Py4JError) as problem:
                notes.append(f"{share:.0%} to one key could not be measured: {first_line(problem)}")
    return found, notes


@dataclass(frozen=True, slots=True)
class _Said:
    """What was said while the key was hot."""

    window: ApplicationWindow
    critical: CriticalWindow
    ds2: Proposal | NotReady
    ds2_executors: int | None
    veto: str

    def outlasts(self, later: Proposal | NotReady) -> bool:
        """Whether DS2 has answered, and says nothing now: a window may be without a batch."""
        return isinstance(later, NotReady) and not isinstance(self.ds2, NotReady)

    @property
    def is_final(self) -> bool:
        """Whether waiting would tell no more: DS2 holds, or what it asks for was judged."""
        asked, held = self.ds2_executors, self.window.parallelism[EXECUTORS]
        return not isinstance(self.ds2, NotReady) and (asked is None or asked <= held or bool(self.veto))


@dataclass
class _Experiment:
    """One share of hot records, from an even start to the state after the moves."""

    spark: SparkSession
    scratch: Path
    share: float
    effort: Effort
    progress: Progress
    query: StreamingQuery = field(init=False)
    newest: CriticalWindow | None = None

    def run(self) -> Skewed:
        """Even batches, skewed ones, what is said of them, and those after bins have moved."""
        self.workload = SkewedState(
            profile=f"constant:{RECORDS_PER_BATCH / TRIGGER_SECONDS:g}",
            seconds_per_record=SECONDS_PER_RECORD,
            share=self.share,
            even_records=RECORDS_PER_BATCH * self.effort.even_batches,
            max_records_per_batch=RECORDS_PER_BATCH,
        )
        checkpoint = str(self.scratch / "checkpoint")
        self.query = start_skewed_state(
            self.spark, self.workload, checkpoint, trigger_seconds=TRIGGER_SECONDS
        )
        try:
            return self._watched()
        finally:
            self.query.stop()

    def _watched(self) -> Skewed:
        settings = load_settings(arguments={"journal": str(self.scratch / "journal.db"), "max_executors": 16})
        source = SparkSource(self.spark, settings)
        source.observe(time.time())
        self.progress(f"{self.share:.0%} to one key: {self.effort.even_batches} even batches first")
        self._await(lambda: len(self._skewed()) >= 2)
        said = self._said(source, settings)
        self._await(lambda: len(self._skewed()) >= self.effort.batches)
        before = self._view(source)
        # a later batch than the first ones that were analysed: processes are warmer
        said = replace(said, critical=self.newest or said.critical)
        skewed = self._skewed()[-self.effort.batches :]
        moved = self._moved(before) if self.effort.move else 0
        moved_at = time.time() if moved else None
        settled = self._after(moved_at) if moved_at else []
        found = self._outcome(said, skewed, settled, moved, (before, self._view(source)))
        between = [one for one in batches_of(self.query) if settled and one.start < settled[0].start]
        return replace(found, moving=tuple(one for one in between if one.start > skewed[-1].start))

    def _said(self, source: SparkSource, settings: Settings) -> _Said:
        """Observe until DS2 has proposed a size and two batches were analysed; its last word counts."""
        self.progress(f"{self.share:.0%} to one key: diagnosing")
        policy, said, analysed = make_policy(settings), None, 0
        deadline = time.monotonic() + WATCHED_SECONDS
        # where nothing is moved, the straggler alone is asked for
        while time.monotonic() < deadline and not (
            said is not None and (not self.effort.move or (analysed >= 2 and said.is_final))
        ):
            time.sleep(TRIGGER_SECONDS / 2)
            self._check()
            window = self._observed(source)
            if isinstance(window, NotReady) or not window.queries[0].critical:
                continue
            proposal = policy.propose(window)
            if said is not None and said.outlasts(proposal):
                continue
            analysed = len({one.batch_id for one in window.queries[0].critical})
            asked = proposal.parallelism.get(EXECUTORS) if isinstance(proposal, Scale) else None
            veto = (useless(window) or "") if asked is not None else ""
            said = _Said(window, window.queries[0].critical[-1], proposal, asked, veto)
        if said is None:
            raise ActionFailed("no batch could be analysed: the diagnosis has nothing to say")
        return said

    def _moved(self, view: StateView) -> int:
        """Let the planner move what it would; how many bins went."""
        assignments = balance(view)
        if not assignments:
            return 0
        self.progress(f"{self.share:.0%} to one key: {len(assignments)} bins move")
        settings = MigrationSettings.of(Strategy.BATCHED)
        migrator = SparkMigrator(self.views)
        migrator.begin([schedule(view, assignments, settings.strategy, settings)], settings)
        self._await(lambda: migrator.poll() is not None)
        (outcome,) = migrator.poll() or ()
        return len(outcome.moved)

    def _outcome(
        self,
        said: _Said,
        skewed: Sequence[BatchSeen],
        settled: Sequence[BatchSeen],
        moved: int,
        views: tuple[StateView, StateView],
    ) -> Skewed:
        hot = said.critical.hot_task
        return Skewed(
            share=self.share,
            executors=said.window.parallelism[EXECUTORS],
            even=tuple(self._even()),
            skewed=tuple(skewed),
            settled=tuple(settled),
            bins_moved=moved,
            imbalance=(views[0].imbalance(), views[1].imbalance() if moved else views[0].imbalance()),
            straggler_found=hot is not None and hot.partition == HOT_BIN,
            times_median=None if hot is None else hot.times_median,
            participation={name: part for name, part in said.critical.worker.items() if name != "driver"},
            answer=said.critical.answer,
            ds2=said.ds2.reason,
            ds2_executors=said.ds2_executors,
            ds2_answered=not isinstance(said.ds2, NotReady),
            veto=said.veto,
            hot_seconds=RECORDS_PER_BATCH * SECONDS_PER_RECORD * self.workload.hot_bin_share(),
        )

    def _view(self, source: SparkSource) -> StateView:
        """Where bins lie, with the loads that the observer saw last."""
        self.views = SparkViews(self.spark, SparkPlacement(self.spark), source.state_tasks)
        self._observed(source)
        (view,) = self.views.full_views()
        return view

    def _observed(self, source: SparkSource) -> ApplicationWindow | NotReady:
        window = source.observe(time.time())
        if not isinstance(window, NotReady) and window.queries[0].critical:
            self.newest = window.queries[0].critical[-1]
        return window

    def _even(self) -> list[BatchSeen]:
        """Whole batches before the key was hot; the first one warms processes up."""
        return [
            batch for batch in batches_of(self.query) if batch.records_read <= self.workload.even_records
        ][1:]

    def _skewed(self) -> list[BatchSeen]:
        return [
            batch
            for batch in batches_of(self.query)
            if batch.records_read - batch.records >= self.workload.even_records
        ]

    def _after(self, moved_at: float) -> list[BatchSeen]:
        """Batches after the moves; the first one has loaded what moved."""

        def later() -> list[BatchSeen]:
            return [batch for batch in batches_of(self.query) if batch.start >= moved_at]

        self._await(lambda: len(later()) > self.effort.batches)
        return later()[1:]

    def _await(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + MOST_SECONDS
        while not reached():
            self._check()
            if time.monotonic() > deadline:
                raise ActionFailed(f"the query with {self.share:.0%} to one key got no further")
            time.sleep(0.2)

    def _check(self) -> None:
        if not self.query.isActive:
            raise ActionFailed(f"the query ended: {self.query.exception()}")
