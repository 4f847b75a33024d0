"""A key that becomes hot: what diagnosis says, what DS2 asks for, and what moving bins away from it brings.

One query on a real cluster keeps counts by key in paced instances, 16 bins on four executors of one slot.
At first its bins are alike and Spark spreads them evenly; then a share of all records goes to one key. The
bin of that key holds its executor up, and the other bins there wait behind it. Diagnosis is to name it. DS2
is asked what it would do. The planner moves the neighbours away, which frees the hot bin; the cost of the key
itself remains.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from penstock.dataflow.moves import Strategy
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, CriticalWindow, SlotWindow
from penstock.decide.manager.critical_path import explain_useless_growth
from penstock.decide.policy import Proposal, Scale
from penstock.decide.registry import make_policy
from penstock.errors import ActionFailed
from penstock.migrate.bins import StateView
from penstock.migrate.planner import balance
from penstock.migrate.settings import MigrationSettings
from penstock.migrate.spark_placement import SparkPlacement
from penstock.migrate.spark_views import SparkViews
from penstock.observe.spark_source import SparkSource
from penstock.settings.model import load_settings
from penstock_lab.experiments.batches import BatchSeen
from penstock_lab.experiments.measurement import (
    Extent,
    Measurement,
    Progress,
    Row,
    tell_settings,
)
from penstock_lab.experiments.moving.queries import migrate_bins
from penstock_lab.experiments.spark_query import (
    await_state,
    check_query,
    list_batches,
    note_failure,
    stop_after,
)
from penstock_lab.ground.spark_cluster import ClusterShape, cluster, scratch_directory
from penstock_lab.workloads.key_count import SkewedState, build_skewed_state
from penstock_lab.workloads.source import start_counts
from penstock_lab.workloads.state_stores import ROCKSDB_STATE

STRAGGLER_SHARES = (0.3, 0.5, 0.8)
"""Of figure 3.10."""
REMEDY_SHARES = (0.2, 0.5, 0.7)
"""The skews of DS2's section 4.2.3, at which bins are moved."""
HOT_BIN = 0
TRIGGER_SECONDS = 2.0
RECORDS_PER_BATCH = 800
SECONDS_PER_RECORD = 0.005
"""Four slot-seconds a batch: spread evenly they take a second of each of the four slots."""
SETTINGS = {"max_executors": 16}
MOST_SECONDS = 120.0
WATCHED_SECONDS = 20.0
"""How long to wait for diagnosis and DS2, which do not analyse every batch."""


def describe_logged_cluster(name: str) -> ClusterShape:
    """Describe four slots of one executor each, with an event log that can be read while they run."""
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": Path(_make_log_folder().name).as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB_STATE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.adaptive.enabled": "false",
    }
    return ClusterShape(4, 1, 768, name, "OFF", conf)


@cache
def _make_log_folder() -> tempfile.TemporaryDirectory[str]:
    """Make one log directory for this process, so that its clusters are alike and can be kept."""
    return tempfile.TemporaryDirectory(prefix="penstock-logs-")


@dataclass(frozen=True, slots=True)
class HotEffort:
    """The batches that are looked at in each state, and whether bins are moved."""

    even_batches: int = 4
    batches: int = 4
    move: bool = True


def choose_efforts(extent: Extent) -> dict[float, HotEffort]:
    """Choose the shares of hot records; the report moves bins at the shares of the paper only."""
    if not extent.report:
        shares = (0.5,) if extent.quick else sorted({*STRAGGLER_SHARES, *REMEDY_SHARES})
        return dict.fromkeys(shares, HotEffort())
    remedied = (0.5,) if extent.quick else REMEDY_SHARES
    moved = HotEffort(even_batches=3, batches=3) if extent.quick else HotEffort()
    short = HotEffort(even_batches=2, batches=2, move=False)
    shares = sorted({*STRAGGLER_SHARES, *remedied})
    return {share: moved if share in remedied else short for share in shares}


@dataclass(frozen=True, slots=True)
class Skewed:
    """One share of hot records: batches before, with and after the remedy, and what diagnosis and DS2 said.

    `even` are batches before the key became hot. `settled` are those after the hot bin's neighbours
    moved; none where nothing was to be moved.
    """

    share: float
    executors: int
    even: tuple[BatchSeen, ...]
    skewed: tuple[BatchSeen, ...]
    settled: tuple[BatchSeen, ...]
    bins_moved: int
    imbalance: tuple[float, float]
    """Load a slot of the fullest executor over the mean, before and after."""
    hot_executor: str
    """The executor that holds the hot bin."""
    times_median: float | None
    """How many times longer than the median the slowest task is; None where none stands out."""
    participation: Mapping[str, float]
    """The share of the critical path that each slot has."""
    answer: str
    ds2: str
    ds2_executors: int | None
    veto: str
    hot_seconds: float
    """Service time of the hot bin alone in a batch, which no placement shortens."""
    moving: tuple[BatchSeen, ...] = ()
    """Batches while bins moved."""
    ds2_answered: bool = True
    """Whether DS2 answered: it does not where no batch ended in the window."""

    @property
    def busiest(self) -> str:
        """The executor whose slot has the largest share of the critical path."""
        slot = max(self.participation, key=lambda name: self.participation[name], default="")
        return slot.partition(" slot")[0]

    @property
    def straggler_found(self) -> bool:
        """Whether participation points at the executor of the hot bin; times of tasks are not asked."""
        return self.busiest == self.hot_executor

    @property
    def case(self) -> str:
        """The share in words."""
        return f"{self.share:.0%} to one key"

    def make_row(self) -> Row:
        """Return the fields of the report."""
        before, after = _find_median(self.skewed), _find_median(self.settled)
        return {
            "case": self.case,
            "hot_share": self.share,
            "straggler_found": self.straggler_found,
            "straggler_times_median": self.times_median,
            "straggler_participation": max(self.participation.values(), default=None),
            "ds2_executors": self.ds2_executors,
            "executors": self.executors,
            "growth_vetoed": bool(self.veto),
            "even_batch_s": _find_median(self.even),
            "skewed_batch_s": before,
            "settled_batch_s": after,
            "gain": None if before is None or after is None else 1 - after / before,
            "least_batch_s": self.hot_seconds,
            "bins_moved": self.bins_moved,
            "imbalance_before": self.imbalance[0],
            "imbalance_after": self.imbalance[1],
            "settings": tell_settings(SETTINGS),
        }

    def note(self) -> str:
        """Tell what diagnosis and DS2 said of it."""
        said = f"{self.case}: diagnosis: {self.answer} DS2: {self.ds2}"
        return f"{said}; vetoed: {self.veto}" if self.veto else said


def run(extent: Extent, progress: Progress) -> Measurement:
    """Measure one share after the other on one cluster."""
    found: list[Skewed] = []
    failures: list[str] = []
    with cluster(describe_logged_cluster("penstock bench skew")) as spark, scratch_directory() as scratch:
        for share, effort in choose_efforts(extent).items():
            with note_failure(failures, f"{share:.0%} to one key"):
                found.append(_HotKey(spark, scratch / f"{share:g}", share, effort, progress).run())
    rows = [one.make_row() for one in found]
    notes = [
        f"batches hold {RECORDS_PER_BATCH} records of {SECONDS_PER_RECORD * 1000:g} ms each; batch times "
        "hold Spark's fixed costs, least_batch_s does not",
        *(one.note() for one in found),
    ]
    gains = {f"gain_{row['hot_share']:.0%}": row["gain"] for row in rows if row["gain"] is not None}
    return Measurement(rows, gains, notes, failures, found, extent.quick)


def _find_median(batches: Sequence[BatchSeen]) -> float | None:
    return median(batch.seconds for batch in batches) if batches else None


def _find_hot_executor(view: StateView) -> str:
    """Return the executor that holds the hot bin, by the name that participation gives it."""
    held = (worker for place, worker in view.placement().items() if place.partition == HOT_BIN)
    return f"executor {next(held, 'unknown')}"


@dataclass(frozen=True, slots=True)
class _Said:
    """The words of diagnosis and DS2 while the key was hot."""

    window: ApplicationWindow
    critical: CriticalWindow
    ds2: Proposal | NotReady
    ds2_executors: int | None
    veto: str

    def outlasts(self, later: Proposal | NotReady) -> bool:
        """Return whether DS2 answered before and not now: a window may be without a batch."""
        return isinstance(later, NotReady) and not isinstance(self.ds2, NotReady)

    @property
    def is_final(self) -> bool:
        """Whether waiting would tell no more: DS2 holds, or what it asks for was judged."""
        asked, held = self.ds2_executors, self.window.parallelism[EXECUTORS]
        return not isinstance(self.ds2, NotReady) and (asked is None or asked <= held or bool(self.veto))


@dataclass
class _HotKey:
    """One share of hot records, from an even start to the state after the moves."""

    spark: SparkSession
    scratch: Path
    share: float
    effort: HotEffort
    progress: Progress
    newest: CriticalWindow | None = None

    def run(self) -> Skewed:
        """Watch even batches, skewed ones with their diagnosis, and those after bins have moved."""
        self.workload = SkewedState(
            profile=f"constant:{RECORDS_PER_BATCH / TRIGGER_SECONDS:g}",
            seconds_per_record=SECONDS_PER_RECORD,
            share=self.share,
            even_records=RECORDS_PER_BATCH * self.effort.even_batches,
            max_records_per_batch=RECORDS_PER_BATCH,
        )
        counts, checkpoint = build_skewed_state(self.spark, self.workload), str(self.scratch / "checkpoint")
        query = start_counts(counts, checkpoint, trigger_seconds=TRIGGER_SECONDS, name="skewed")
        with stop_after(query) as self.query:
            self.source = SparkSource(self.spark)
            self.views = SparkViews(self.spark, SparkPlacement(self.spark), self.source.state_tasks)
            return self._watch()

    def _watch(self) -> Skewed:
        self.source.observe(time.time())
        self._tell(f"{self.effort.even_batches} even batches first")
        self._await(lambda: len(self._list_skewed()) >= 2)
        said = self._listen()
        self._await(lambda: len(self._list_skewed()) >= self.effort.batches)
        before = self._view()
        # a later batch than the first ones that were analysed: processes are warmer
        said = replace(said, critical=self.newest or said.critical)
        skewed = self._list_skewed()[-self.effort.batches :]
        moved = self._move_bins(before) if self.effort.move else 0
        settled = self._await_settled(time.time()) if moved else []
        views = (before, self._view() if moved else before)
        return self._conclude(said, skewed, settled, moved, views)

    def _listen(self) -> _Said:
        """Observe until DS2 has proposed a size and two batches were analysed; its last word counts."""
        self._tell("diagnosing")
        journal = str(self.scratch / "journal.db")
        settings = load_settings(arguments={**SETTINGS, "journal": journal})
        policy, said, analysed = make_policy(settings.run.policy, settings), None, 0
        deadline = time.monotonic() + WATCHED_SECONDS
        # where nothing is moved, the straggler alone is asked for
        while time.monotonic() < deadline and not (
            said is not None and (not self.effort.move or (analysed >= 2 and said.is_final))
        ):
            time.sleep(TRIGGER_SECONDS / 2)
            check_query(self.query)
            window = self._observe()
            if isinstance(window, NotReady) or not window.queries[0].critical:
                continue
            proposal = policy.propose(window)
            if said is not None and said.outlasts(proposal):
                continue
            analysed = len({one.batch_id for one in window.queries[0].critical})
            asked = proposal.parallelism.get(EXECUTORS) if isinstance(proposal, Scale) else None
            veto = (explain_useless_growth(window) or "") if asked is not None else ""
            said = _Said(window, window.queries[0].critical[-1], proposal, asked, veto)
        if said is None:
            raise ActionFailed("no batch could be analysed: the diagnosis has nothing to say")
        return said

    def _move_bins(self, view: StateView) -> int:
        """Move what the planner would; return how many bins went."""
        assignments = balance(view)
        if not assignments:
            return 0
        self._tell(f"{len(assignments)} bins move")
        settings = MigrationSettings.of(Strategy.OPTIMIZED)
        return len(migrate_bins(self.query, self.views, view, assignments, settings).moved)

    def _conclude(
        self,
        said: _Said,
        skewed: Sequence[BatchSeen],
        settled: Sequence[BatchSeen],
        moved: int,
        views: tuple[StateView, StateView],
    ) -> Skewed:
        hot, batches = said.critical.hot_task, list_batches(self.query)
        # whole batches before the key was hot, without the first one, which warms processes up
        even = [batch for batch in batches if batch.records_read <= self.workload.even_records][1:]
        moving = [batch for batch in batches if settled and skewed[-1].start < batch.start < settled[0].start]
        return Skewed(
            share=self.share,
            executors=said.window.parallelism[EXECUTORS],
            even=tuple(even),
            skewed=tuple(skewed),
            moving=tuple(moving),
            settled=tuple(settled),
            bins_moved=moved,
            imbalance=(views[0].imbalance(), views[1].imbalance()),
            hot_executor=_find_hot_executor(views[0]),
            times_median=None if hot is None else hot.times_median,
            participation={name: part for name, part in said.critical.worker.items() if name != "driver"},
            answer=said.critical.answer,
            ds2=said.ds2.reason,
            ds2_executors=said.ds2_executors,
            ds2_answered=not isinstance(said.ds2, NotReady),
            veto=said.veto,
            hot_seconds=RECORDS_PER_BATCH * SECONDS_PER_RECORD * self.workload.hot_bin_share,
        )

    def _view(self) -> StateView:
        """View where bins lie, with the loads that the observer saw last."""
        self._observe()
        (view,) = self.views.full_views()
        return view

    def _observe(self) -> SlotWindow | NotReady:
        window = self.source.observe(time.time())
        if not isinstance(window, NotReady) and window.queries[0].critical:
            self.newest = window.queries[0].critical[-1]
        return window

    def _list_skewed(self) -> list[BatchSeen]:
        even = self.workload.even_records
        return [batch for batch in list_batches(self.query) if batch.records_read - batch.records >= even]

    def _await_settled(self, since: float) -> list[BatchSeen]:
        """Return batches after the moves, without the first one, which has loaded what moved."""

        def list_later() -> list[BatchSeen]:
            return [batch for batch in list_batches(self.query) if batch.start >= since]

        self._await(lambda: len(list_later()) > self.effort.batches)
        return list_later()[1:]

    def _await(self, reached: Callable[[], bool]) -> None:
        await_state(self.query, reached, MOST_SECONDS, f"{self.share:.0%} to one key")

    def _tell(self, text: str) -> None:
        self.progress(f"{self.share:.0%} to one key: {text}")
