"""A migration as a pure state machine that advances once for each finished batch of the query.

At one boundary the placements of the last one are verified, the group that is prepared is placed, and the
group after it is asked to upload its snapshots, so that each move follows its snapshot by one batch:

    after batch n      UploadSnapshots(A)
    after batch n+1    PlaceBins(A)   UploadSnapshots(B)
    after batch n+2    A is where it should be: moved.   PlaceBins(B)   UploadSnapshots(C)   ...

At every boundary all bins are looked at: those that wait, those that were placed, and those that had arrived.
A move that did not take, or did not stay, goes back to the head of the queue, and is given up after its
retries. Between two boundaries nothing is half done: every bin has one owner, so a migration can end at any
of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.dataflow.moves import Move, Plan, Strategy
from penstock.decide.outcome import Status
from penstock.migrate import pacing
from penstock.migrate.mover import MovesEnded
from penstock.migrate.pacing import Boundary, Pending, Queue
from penstock.migrate.settings import MigrationSettings

MEMORY = 0.7
"""The share of the believed steady time that is kept when an undisturbed batch shows another one."""
MOST_DRIFT = 2.0
"""The steady time never rises above this multiple: a slow cluster must not raise the budget."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration under way.

    `queue` waits, `placed` was issued at the last boundary and is to be verified, `settled` was seen at its
    target; `busy` says that the batch now running does work for the migration. `strays` counts how often a
    bin was elsewhere after it had arrived, `dead` names the sources that died.
    """

    plan: Plan
    settings: MigrationSettings
    pace: pacing.Pace
    given_steady: float
    steady_seconds: float
    queue: Queue
    placed: Queue = ()
    settled: Queue = ()
    given_up: tuple[tuple[Move, str], ...] = ()
    batches: int = 0
    last_seconds: float = 0.0
    slowest_seconds: float = 0.0
    far_in_a_row: int = 0
    placed_after: int | None = None
    busy: bool = False
    strays: int = 0
    dead: frozenset[str] = frozenset()

    @property
    def moved(self) -> tuple[Move, ...]:
        """The moves that took, each with the batch at which it did."""
        return tuple(one.move for one in self.settled)

    def budget_seconds(self) -> float:
        """Return how long a batch may take while this migration goes on."""
        return self.pace.budget(self.steady_seconds)


@dataclass(frozen=True, slots=True)
class MigrationOutcome:
    """The end of a migration: what moved and at which batch, and what was given up and why."""

    status: Status
    moved: tuple[Move, ...]
    given_up: tuple[tuple[Move, str], ...]
    batches: int
    slowest_seconds: float
    detail: str
    stopped: bool = False


def join_outcomes(outcomes: Sequence[MigrationOutcome]) -> MovesEnded:
    """Join the outcomes of several queries: what moved stays moved, whatever failed."""
    moved = sum(len(outcome.moved) for outcome in outcomes)
    detail = "; ".join(outcome.detail for outcome in outcomes if outcome.detail)
    if all(outcome.status is Status.DONE for outcome in outcomes):
        return MovesEnded(Status.DONE, moved, detail)
    return MovesEnded(Status.PARTIAL if moved else Status.FAILED, moved, detail)


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """The migration after a step, what is to be done now, and the outcome once it has ended."""

    migration: Migration
    instructions: tuple[pacing.BoundaryInstruction, ...] = ()
    outcome: MigrationOutcome | None = None


def begin_migration(
    plan: Plan, steady_seconds: float, boundary: Boundary, settings: MigrationSettings | None = None
) -> MigrationProgress:
    """Start at this boundary; `steady_seconds` is what a batch of the query takes when nothing moves."""
    settings = settings or MigrationSettings.of(plan.strategy)
    pace = pacing.choose_first_pace(plan.strategy, settings, len(plan.moves))
    queue = tuple(Pending(move, move.source) for move in plan.moves)
    migration = Migration(plan, settings, pace, steady_seconds, steady_seconds, queue)
    if not queue:
        return MigrationProgress(migration, (), _make_outcome(migration, "nothing had to move"))
    seen = _relocate_waiting(_note_deaths(migration, boundary), boundary)
    return _issue_moves(seen, boundary) if seen.queue else _end(seen, "", "")


def advance_migration(migration: Migration, boundary: Boundary) -> MigrationProgress:
    """Advance by one finished batch."""
    seen = _measure_batch(migration, boundary)
    for look in (_note_deaths, _verify_placements, _reissue_strayed, _relocate_waiting):
        seen = look(seen, boundary)
    if boundary.stop is not None:
        return _end(seen, f"stopped: {boundary.stop}", "it was asked to stop", stopped=True)
    if not seen.queue:
        return _end(seen, "", "")
    if seen.far_in_a_row >= seen.settings.far_batches:
        far = seen.settings.far_ratio * seen.budget_seconds()
        why = f"{seen.far_in_a_row} batches in a row took longer than {far:.1f} s"
        return _end(seen, f"stopped by itself: {why}", why)
    return _issue_moves(seen, boundary)


def abandon_migration(migration: Migration, reason: str) -> MigrationOutcome:
    """End it where it stands, when its batches will not come any more."""
    waiting = tuple((one.move, reason) for one in migration.queue)
    unseen = tuple((one.move, f"{reason}; its last placement was not verified") for one in migration.placed)
    left = replace(migration, queue=(), placed=(), given_up=(*migration.given_up, *unseen, *waiting))
    return _make_outcome(left, f"broken off: {reason}")


def _measure_batch(migration: Migration, boundary: Boundary) -> Migration:
    """Learn from what the batch took: pace, slowest batch, and batches far over the budget."""
    steady, pace = migration.steady_seconds, migration.pace
    if migration.busy:
        pace = pacing.adapt_pace(pace, len(migration.placed), boundary.seconds, steady)
    else:
        drifted = MEMORY * steady + (1 - MEMORY) * boundary.seconds
        steady = min(drifted, MOST_DRIFT * migration.given_steady)
    far = boundary.seconds > migration.settings.far_ratio * migration.budget_seconds()
    return replace(
        migration,
        steady_seconds=steady,
        pace=pace,
        batches=migration.batches + 1,
        last_seconds=boundary.seconds,
        slowest_seconds=max(migration.slowest_seconds, boundary.seconds),
        far_in_a_row=_count_far_batches(migration, far),
    )


def _count_far_batches(migration: Migration, far: bool) -> int:
    """Count batches far over the budget; those that did nothing for the migration count neither way."""
    if not migration.busy:
        return migration.far_in_a_row
    return migration.far_in_a_row + 1 if far else 0


def _note_deaths(migration: Migration, boundary: Boundary) -> Migration:
    """Remember which of the plan's sources are dead."""
    sources = frozenset(move.source for move in migration.plan.moves)
    return replace(migration, dead=migration.dead | (sources - boundary.alive()))


def _verify_placements(migration: Migration, boundary: Boundary) -> Migration:
    """Sort the last placements: at the target, to be issued again, or given up."""
    taken = [one for one in migration.placed if boundary.holds(one.move)]
    settled = tuple(replace(one, move=replace(one.move, batch=boundary.batch)) for one in taken)
    missed = pacing.remove_from(migration.placed, taken)
    return _queue_again(
        replace(migration, placed=(), settled=(*migration.settled, *settled)),
        missed,
        boundary,
        "did not take",
    )


def _reissue_strayed(migration: Migration, boundary: Boundary) -> Migration:
    """Issue again what had arrived and is elsewhere now: a busy target can lose a bin for good."""
    waiting = {one.move.bin for one in migration.queue}
    newest = pacing.take_heads(reversed(migration.settled))
    strayed = tuple(one for one in newest if one.move.bin not in waiting and not boundary.holds(one.move))
    if not strayed:
        return migration
    left = replace(migration, settled=pacing.remove_from(migration.settled, strayed))
    strays = sum(one.move.target in boundary.alive() for one in strayed)
    return _queue_again(replace(left, strays=migration.strays + strays), strayed, boundary, "did not stay")


def _queue_again(migration: Migration, missed: Queue, boundary: Boundary, what: str) -> Migration:
    """Put these at the head of the queue, or give up those that were tried often enough."""
    back, given_up = [], []
    for one in missed:
        tries = one.tries + 1
        if tries > migration.settings.retries:
            where = boundary.locations.get(one.move.bin, "an unknown place")
            given_up.append((one.move, f"{what} in {tries} tries: the bin is at {where}"))
        else:
            back.append(replace(one, tries=tries, found=False))
    return replace(migration, queue=(*back, *migration.queue), given_up=(*migration.given_up, *given_up))


def _relocate_waiting(migration: Migration, boundary: Boundary) -> Migration:
    """Take what waits as it is now: at its target already, at another source, or without a target."""
    alive = boundary.alive()
    for one in pacing.take_heads(migration.queue):
        here, move = boundary.locations.get(one.move.bin), one.move
        if move.target not in alive:
            migration = _give_up(migration, one, f"executor {move.target} is gone")
        elif here == move.target:
            arrived = replace(one, move=replace(move, batch=boundary.batch), found=True)
            queue = pacing.remove_from(migration.queue, (one,))
            migration = replace(migration, queue=queue, settled=(*migration.settled, arrived))
        elif here is not None and here != move.source:
            elsewhere = replace(one, move=replace(move, source=here))
            migration = replace(migration, queue=pacing.exchange_in(migration.queue, one, elsewhere))
    return migration


def _give_up(migration: Migration, one: Pending, reason: str) -> Migration:
    left = replace(migration, queue=pacing.remove_from(migration.queue, (one,)))
    return replace(left, given_up=(*migration.given_up, (one.move, reason)))


def _issue_moves(migration: Migration, boundary: Boundary) -> MigrationProgress:
    """Place what is prepared, and ask for the snapshots of what comes next."""
    batch, plan, settings, bins = boundary.batch, migration.plan, migration.settings, migration.pace.bins
    placed: Queue = ()
    if _gap_is_over(migration, batch):
        placed = pacing.choose_to_place(migration.queue, plan.strategy, settings, bins, boundary)
    alive = boundary.alive()
    migration = replace(
        migration,
        queue=pacing.remove_from(migration.queue, placed),
        placed=tuple(replace(one, source_died=one.move.source not in alive) for one in placed),
        placed_after=batch if placed else migration.placed_after,
    )
    prepared: Queue = ()
    if settings.prepare and _gap_is_over(migration, batch + 1):
        prepared = pacing.choose_to_prepare(migration.queue, plan.strategy, bins, boundary)
    migration = replace(
        migration, queue=pacing.mark_asked(migration.queue, prepared, batch), busy=bool(placed or prepared)
    )
    return MigrationProgress(migration, tuple(_make_instructions(placed, prepared)))


def _gap_is_over(migration: Migration, batch: int) -> bool:
    """Tell whether queued records had the time to drain since the last placement (section 5.2.4)."""
    if migration.placed_after is None or migration.plan.strategy is Strategy.OWN:
        return True
    return batch - migration.placed_after > migration.settings.gap


def _make_instructions(placed: Queue, prepared: Queue) -> Iterable[pacing.BoundaryInstruction]:
    moves = tuple(one.move for one in placed)
    if moves:
        yield pacing.PlaceBins(moves)
    if prepared:
        yield pacing.UploadSnapshots(tuple(one.move.bin for one in prepared))


def _end(migration: Migration, detail: str, why_not: str, stopped: bool = False) -> MigrationProgress:
    waiting = tuple((one.move, why_not) for one in migration.queue)
    left = replace(migration, queue=(), given_up=(*migration.given_up, *waiting))
    return MigrationProgress(left, (), _make_outcome(left, detail, stopped))


def _make_outcome(migration: Migration, detail: str, stopped: bool = False) -> MigrationOutcome:
    moved, of = migration.moved, len(migration.plan.moves)
    status = Status.DONE if not migration.given_up else Status.PARTIAL if moved else Status.FAILED
    counted = f"{len(moved)} of {of} bins moved in {migration.batches} batches" if of else ""
    said = "; ".join(
        filter(None, (detail, counted, *_count_reasons(migration.given_up), *_describe_arrivals(migration)))
    )
    return MigrationOutcome(
        status, moved, migration.given_up, migration.batches, migration.slowest_seconds, said, stopped
    )


def _count_reasons(given_up: Iterable[tuple[Move, str]]) -> tuple[str, ...]:
    """Name each reason once, with how many moves it stopped."""
    counts = Counter(reason for _, reason in given_up)
    return tuple(f"{count} given up: {reason}" for reason, count in counts.items())


def _describe_arrivals(migration: Migration) -> Iterable[str]:
    """Say which moves were not the planned ones, as after the death of a worker."""
    counts = Counter(_describe_arrival(migration, one) for one in migration.settled)
    yield from (f"{count} {how}" for how, count in counts.items() if how)
    if migration.strays:
        yield f"{migration.strays} strayed after arrival"


def _describe_arrival(migration: Migration, one: Pending) -> str:
    """Say how the bin came to its target if not by the planned move; else nothing."""
    source, planned = one.move.source, one.planned_source
    if one.found:
        return "found at the target already"
    if one.source_died:
        return f"loaded from the checkpoint: executor {source}, which held them, had died"
    if source != planned:
        died = ", which died" if planned in migration.dead else ""
        return f"found at executor {source}, not at {planned}{died}: moved from there"
    return ""
