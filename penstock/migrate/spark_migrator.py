"""Plans carried out on a running application, boundary by boundary, in a thread of its own.

A move holds when it is issued right after a batch has ended, before the next one's tasks are placed: that
is within some tenths of a second, so the loop's own ticks would come too late.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from penstock.dataflow.moves import Bin, Plan
from penstock.decide.outcome import Status
from penstock.errors import ActionFailed, PenstockError
from penstock.migrate.migration import (
    Migration,
    MigrationOutcome,
    MigrationProgress,
    abandon_migration,
    advance_migration,
    begin_migration,
    join_outcomes,
)
from penstock.migrate.pacing import Boundary, BoundaryInstruction, PlaceBins, UploadSnapshots
from penstock.migrate.settings import MigrationSettings
from penstock.migrate.spark_placement import StateStage
from penstock.migrate.spark_views import SparkViews
from penstock.observe.spark_status import RunningQuery

_LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.02
SNAPSHOT_DELAY_SECONDS = 0.06
"""After a batch Spark asks for laggards itself and forgets earlier requests: so ours come a bit later."""
WORTH_A_SNAPSHOT_BYTES = 256 * 1024
"""Smaller bins are read and replayed in less than a tenth of a second, and a snapshot costs a batch."""
BATCHES_FOR_STEADY = 10
LONGEST_SILENCE_SECONDS = 120.0
SILENCE_AFTER_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a migration, for whoever watches."""

    state: str
    moved: int
    of: int
    batch_seconds: float = 0.0
    steady_seconds: float = 0.0
    detail: str = ""


class SparkMigrator:
    """Performs one migration at a time; `poll` tells its outcomes."""

    def __init__(self, views: SparkViews, locality_wait_seconds: float = 10.0) -> None:
        self._views = views
        self._locality_wait = locality_wait_seconds
        self._thread: threading.Thread | None = None
        self._stop: str | None = None
        self._outcomes: tuple[MigrationOutcome, ...] | None = None
        self._standing: Standing | None = None

    @property
    def running(self) -> bool:
        """True while a migration is under way; one that `standing` calls done is not."""
        return self._outcomes is None and self._thread is not None and self._thread.is_alive()

    def begin(self, plans: Sequence[Plan], settings: MigrationSettings | None = None) -> None:
        """Start to carry out these plans, one query after the other; returns at once."""
        if self.running:
            raise ActionFailed("a migration is under way: wait for its end, or stop it")
        self._stop, self._outcomes = None, None
        self._standing = Standing("moving", 0, sum(len(plan.moves) for plan in plans))
        self._thread = threading.Thread(
            target=self._run, args=(tuple(plans), settings), name="penstock-migration", daemon=True
        )
        self._thread.start()

    def poll(self) -> tuple[MigrationOutcome, ...] | None:
        """Return one outcome for each plan; None while the migration goes on."""
        return self._outcomes

    def stop(self, reason: str) -> bool:
        """Ask it to stop at the next batch boundary; tell whether there was one to stop."""
        self._stop = reason
        return self.running

    def standing(self) -> Standing | None:
        """Return how the last migration stands; None before the first."""
        outcomes = self._outcomes
        return self._standing if outcomes is None else _describe_end(outcomes, self._standing)

    def _run(self, plans: tuple[Plan, ...], settings: MigrationSettings | None) -> None:
        outcomes: list[MigrationOutcome] = []
        for plan in plans:
            try:
                outcomes.append(self._migrate(plan, settings, sum(len(one.moved) for one in outcomes)))
            except PenstockError as problem:
                outcomes.append(_fail(plan, str(problem)))
            except Exception as problem:
                _LOG.exception("a migration failed")
                outcomes.append(_fail(plan, f"{type(problem).__name__}: {problem}"))
        # the last thing of all, and one write: whoever hears of the end may begin the next one at once
        self._outcomes = tuple(outcomes)

    def _migrate(self, plan: Plan, settings: MigrationSettings | None, moved_before: int) -> MigrationOutcome:
        query = self._views.query(plan.query)
        if query is None:
            return _fail(plan, "the query is not running")
        stages = {stage.operator: stage for stage in self._views.stages(query)}
        self._views.placement.hold_placement(self._locality_wait)
        chosen = self._choose_settings(plan, stages, settings)
        session = _Session(self._views, query, stages, lambda: self._stop)
        session.look()  # the first look makes the ids of all bins, and takes longer than a boundary has time
        if not session.next_batch():
            return _fail(plan, session.why_silent)
        progress = begin_migration(plan, session.steady_seconds(), session.look(), chosen)
        while progress.outcome is None:
            session.perform(progress)
            self._tell(progress.migration, moved_before)
            if not session.next_batch():
                return abandon_migration(progress.migration, session.why_silent)
            progress = advance_migration(progress.migration, session.look())
        self._tell(progress.migration, moved_before)
        return progress.outcome

    def _choose_settings(
        self, plan: Plan, stages: dict[int, StateStage], settings: MigrationSettings | None
    ) -> MigrationSettings:
        """Wait for snapshots only where the store uploads them on demand, and where they save time."""
        chosen = settings or MigrationSettings.of(plan.strategy)
        if not chosen.prepare:
            return chosen
        bins = dict.fromkeys(move.bin for move in plan.moves)
        sizes = (self._views.placement.measure_stored(stages[bin_.operator], bin_) for bin_ in bins)
        worth = any(size.on_demand and size.bytes >= WORTH_A_SNAPSHOT_BYTES for size in sizes)
        return chosen if worth else chosen.model_copy(update={"prepare": False})

    def _tell(self, migration: Migration, moved_before: int) -> None:
        total = self._standing.of if self._standing else len(migration.plan.moves)
        moved = moved_before + len(migration.settled)
        self._standing = Standing("moving", moved, total, migration.last_seconds, migration.steady_seconds)


class _Session:
    """One query followed from batch to batch while its bins move."""

    def __init__(
        self,
        views: SparkViews,
        query: RunningQuery,
        stages: dict[int, StateStage],
        asked_to_stop: Callable[[], str | None],
    ) -> None:
        self._views, self._query, self._stages, self._asked_to_stop = views, query, stages, asked_to_stop
        self._asked: set[Bin] = set()
        self.batch = self._views.status.last_batch(query)
        self.ended_at = time.monotonic()
        self.why_silent = ""

    def next_batch(self) -> bool:
        """Wait for the end of the next batch; False when none comes, with the reason in `why_silent`."""
        begun = checked = time.monotonic()
        while True:
            batch = self._views.status.last_batch(self._query)
            now = time.monotonic()
            if batch > self.batch:
                self.batch, self.ended_at = batch, now
                return True
            if now - checked > 1.0:
                checked = now
                if not self._still_runs():
                    return False
            if now - begun > self._patience():
                self.why_silent = self._asked_to_stop() or f"no batch ended within {now - begun:.0f} s"
                return False
            time.sleep(POLL_SECONDS)

    def steady_seconds(self) -> float:
        """Return what a batch takes when nothing moves."""
        seconds = self._views.batch_seconds(self._query, 2 * BATCHES_FOR_STEADY)
        return median(seconds[-BATCHES_FOR_STEADY:]) if seconds else 1.0

    def look(self) -> Boundary:
        """Look at the boundary: where every bin is, in one call a stage, and who is alive."""
        locations: dict[Bin, str] = {}
        for stage in self._stages.values():
            locations |= self._views.placement.locations(stage)
        snapshots = {bin_: self._snapshot(bin_) for bin_ in self._asked}
        seconds = self._views.newest_seconds(self._query) or 0.0
        workers = self._views.workers()
        return Boundary(self.batch, seconds, locations, workers, snapshots, self._asked_to_stop())

    def perform(self, progress: MigrationProgress) -> None:
        """Do what the migration says, now that no batch has placed its tasks."""
        for instruction in progress.instructions:
            self._instruct(instruction)

    def _instruct(self, instruction: BoundaryInstruction) -> None:
        placement = self._views.placement
        if isinstance(instruction, PlaceBins):
            hosts = {worker.worker: worker.host for worker in self._views.workers()}
            for move in instruction.moves:
                if move.target in hosts:
                    stage = self._stages[move.bin.operator]
                    placement.place(stage, move.bin, hosts[move.target], move.target)
            self._asked -= {move.bin for move in instruction.moves}
        elif isinstance(instruction, UploadSnapshots):
            time.sleep(max(0.0, SNAPSHOT_DELAY_SECONDS - (time.monotonic() - self.ended_at)))
            placement.ask_for_snapshots(self._stages.values(), instruction.bins)
            self._asked |= set(instruction.bins)

    def _snapshot(self, bin_: Bin) -> int:
        found = self._views.placement.measure_stored(self._stages[bin_.operator], bin_).snapshot
        return -1 if found is None else found

    def _still_runs(self) -> bool:
        found = self._views.query(self._query.query_id)
        if found is None or found.run_id != self._query.run_id:
            self.why_silent = "the query ended" if found is None else "the query was restarted"
            return False
        return True

    def _patience(self) -> float:
        if self._asked_to_stop() is not None:
            return SILENCE_AFTER_STOP_SECONDS
        return LONGEST_SILENCE_SECONDS + 3 * (self._query.period_seconds or 0.0)


def _fail(plan: Plan, why: str) -> MigrationOutcome:
    return MigrationOutcome(Status.FAILED, (), tuple((move, why) for move in plan.moves), 0, 0.0, why)


def _describe_end(outcomes: Sequence[MigrationOutcome], before: Standing | None) -> Standing:
    status, moved, detail = join_outcomes(outcomes)
    state = "stopped" if any(outcome.stopped for outcome in outcomes) else status.value
    total = before.of if before else moved
    last = (before.batch_seconds, before.steady_seconds) if before else (0.0, 0.0)
    return Standing(state, moved, total, *last, detail)
