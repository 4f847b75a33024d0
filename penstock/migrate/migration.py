"""A migration as a pure state machine, driven once for each finished batch of the query.

At one boundary the placements of the last one are verified, the group that is prepared is placed, and the
group after it is asked to upload its snapshots, so that each move follows its snapshot by one batch:

    after batch n      Snapshot(A)
    after batch n+1    Place(A)   Snapshot(B)
    after batch n+2    A is where it should be: moved.   Place(B)   Snapshot(C)   ...

A move that did not take goes back to the head of the queue, and is given up after its retries. Between two
boundaries nothing is half done: every bin has one owner, so a migration can end at any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.decide.outcome import Status
from penstock.migrate.boundary import Boundary, Instruction, Place, Snapshot
from penstock.migrate.migration_settings import MigrationSettings
from penstock.migrate.pacing import Pace, adapted, first_pace
from penstock.migrate.pending import (
    Pending,
    Queue,
    asked,
    exchanged,
    heads,
    to_place,
    to_prepare,
    without,
)
from penstock.migrate.plan import Move, Plan, Strategy

__all__ = [
    "Boundary",
    "Instruction",
    "Migration",
    "MigrationOutcome",
    "MigrationSettings",
    "Place",
    "Progress",
    "Snapshot",
    "abandon",
    "begin",
    "step",
]

MEMORY = 0.7
"""How much of the believed steady time is kept when an undisturbed batch shows another one."""
MOST_DRIFT = 2.0
"""The steady time never rises above this multiple: a slow cluster must not raise the budget."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration under way.

    `queue` waits, `placed` was issued at the last boundary and is to be verified, `settled` was seen at its
    target; `busy` says that the batch now running does work for the migration.
    """

    plan: Plan
    settings: MigrationSettings
    pace: Pace
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
    found_at_target: int = 0
    found_elsewhere: int = 0

    def moved(self) -> tuple[Move, ...]:
        """The moves that took, each with the batch at which it did."""
        return tuple(one.move for one in self.settled)

    def budget_seconds(self) -> float:
        """How long a batch may take while this migration goes on."""
        return self.pace.budget(self.steady_seconds)


@dataclass(frozen=True, slots=True)
class MigrationOutcome:
    """How a migration ended: what moved and at which batch, and what was given up and why."""

    status: Status
    moved: tuple[Move, ...]
    given_up: tuple[tuple[Move, str], ...]
    batches: int
    slowest_seconds: float
    detail: str
    stopped: bool = False


def joint_outcome(outcomes: Sequence[MigrationOutcome]) -> tuple[Status, int, str]:
    """Status, bins moved and words of migrations at once: what moved stays moved, whatever failed."""
    moved = sum(len(outcome.moved) for outcome in outcomes)
    detail = "; ".join(outcome.detail for outcome in outcomes if outcome.detail)
    if all(outcome.status is Status.DONE for outcome in outcomes):
        return Status.DONE, moved, detail
    return (Status.PARTIAL if moved else Status.FAILED), moved, detail


@dataclass(frozen=True, slots=True)
class Progress:
    """The migration after a step, what is to be done now, and the outcome once it has ended."""

    migration: Migration
    instructions: tuple[Instruction, ...] = ()
    outcome: MigrationOutcome | None = None


def begin(
    plan: Plan, steady_seconds: float, batch: int, settings: MigrationSettings | None = None
) -> Progress:
    """Start after this batch; steady is what a batch of the query takes when nothing moves."""
    settings = settings or MigrationSettings.of(plan.strategy)
    pace = first_pace(plan.strategy, settings, len(plan.moves))
    queue = tuple(Pending(move) for move in plan.moves)
    migration = Migration(plan, settings, pace, steady_seconds, steady_seconds, queue)
    if not queue:
        return Progress(migration, (), _outcome(migration, "nothing had to move"))
    return _issue(migration, Boundary(batch, steady_seconds, {}, ()))


def step(migration: Migration, boundary: Boundary) -> Progress:
    """Advance by one finished batch."""
    seen = _relocated(_strayed(_verified(_measured(migration, boundary), boundary), boundary), boundary)
    if boundary.stop is not None:
        return _ended(seen, f"stopped: {boundary.stop}", "it was asked to stop", stopped=True)
    if not seen.queue:
        return _ended(seen, "", "")
    if seen.far_in_a_row >= seen.settings.far_batches:
        far = seen.settings.far_ratio * seen.budget_seconds()
        why = f"{seen.far_in_a_row} batches in a row took longer than {far:.1f} s"
        return _ended(seen, f"stopped by itself: {why}", why)
    return _issue(seen, boundary)


def abandon(migration: Migration, reason: str) -> MigrationOutcome:
    """End it where it stands, when its batches will not come any more."""
    waiting = tuple((one.move, reason) for one in migration.queue)
    unseen = tuple((one.move, f"{reason}; its last placement was not verified") for one in migration.placed)
    left = replace(migration, queue=(), placed=(), given_up=(*migration.given_up, *unseen, *waiting))
    return _outcome(left, f"broken off: {reason}")


def _measured(migration: Migration, boundary: Boundary) -> Migration:
    """What the batch took: pace, slowest batch, and batches far over the budget."""
    steady, pace = migration.steady_seconds, migration.pace
    if migration.busy:
        pace = adapted(pace, len(migration.placed), boundary.seconds, steady)
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
        far_in_a_row=_far_in_a_row(migration, far),
    )


def _far_in_a_row(migration: Migration, far: bool) -> int:
    """Batches that did nothing for the migration count neither way: their length is not its doing."""
    if not migration.busy:
        return migration.far_in_a_row
    return migration.far_in_a_row + 1 if far else 0


def _verified(migration: Migration, boundary: Boundary) -> Migration:
    """Sort the last placements: at the target, to be issued again, or given up."""
    taken = [one for one in migration.placed if boundary.locations.get(one.move.bin) == one.move.target]
    settled = tuple(replace(one, move=replace(one.move, batch=boundary.batch)) for one in taken)
    missed = without(migration.placed, taken)
    return _again(
        replace(migration, placed=(), settled=(*migration.settled, *settled)),
        missed,
        boundary,
        "did not take",
    )


def _strayed(migration: Migration, boundary: Boundary) -> Migration:
    """Issue again what had arrived and is elsewhere now: a busy target can lose a bin for good."""
    waiting = {one.move.bin for one in migration.queue}
    newest = heads(reversed(migration.settled))
    strayed = tuple(
        one
        for one in newest
        if one.move.bin not in waiting
        and boundary.locations.get(one.move.bin, one.move.target) != one.move.target
    )
    if not strayed:
        return migration
    left = replace(migration, settled=without(migration.settled, strayed))
    return _again(left, strayed, boundary, "did not stay")


def _again(migration: Migration, missed: Queue, boundary: Boundary, what: str) -> Migration:
    """Put these at the head of the queue, or give up those that were tried often enough."""
    back, given_up = [], []
    for one in missed:
        tries = one.tries + 1
        if tries > migration.settings.retries:
            where = boundary.locations.get(one.move.bin, "an unknown place")
            given_up.append((one.move, f"{what} in {tries} tries: the bin is at {where}"))
        else:
            back.append(replace(one, tries=tries))
    return replace(
        migration,
        queue=(*back, *migration.queue),
        given_up=(*migration.given_up, *given_up),
    )


def _relocated(migration: Migration, boundary: Boundary) -> Migration:
    """Take what waits as it is now: at its target already, at another source, or without a target."""
    alive = boundary.alive()
    for one in heads(migration.queue):
        here, move = boundary.locations.get(one.move.bin), one.move
        if move.target not in alive:
            migration = _lost(migration, one, f"executor {move.target} is gone")
        elif here == move.target:
            arrived = replace(one, move=replace(move, batch=boundary.batch))
            migration = replace(
                migration,
                queue=without(migration.queue, (one,)),
                settled=(*migration.settled, arrived),
                found_at_target=migration.found_at_target + 1,
            )
        elif here is not None and here != move.source:
            elsewhere = replace(one, move=replace(move, source=here))
            queue = exchanged(migration.queue, one, elsewhere)
            migration = replace(migration, queue=queue, found_elsewhere=migration.found_elsewhere + 1)
    return migration


def _lost(migration: Migration, one: Pending, reason: str) -> Migration:
    left = replace(migration, queue=without(migration.queue, (one,)))
    return replace(left, given_up=(*migration.given_up, (one.move, reason)))


def _issue(migration: Migration, boundary: Boundary) -> Progress:
    """Place what is prepared, and ask for the snapshots of what comes next."""
    batch, plan, settings, bins = boundary.batch, migration.plan, migration.settings, migration.pace.bins
    placed: Queue = ()
    if _gap_is_over(migration, batch):
        placed = to_place(migration.queue, plan.strategy, settings, bins, batch, boundary.snapshots)
    after = batch if placed else migration.placed_after
    migration = replace(migration, queue=without(migration.queue, placed), placed=placed, placed_after=after)
    prepared: Queue = ()
    if settings.prepare and _gap_is_over(migration, batch + 1):
        prepared = to_prepare(migration.queue, plan.strategy, bins, batch)
    migration = replace(
        migration,
        queue=asked(migration.queue, prepared, batch),
        busy=bool(placed or prepared),
    )
    return Progress(migration, tuple(_instructions(placed, prepared)))


def _gap_is_over(migration: Migration, batch: int) -> bool:
    """Whether queued records had the time to drain since the last placement (section 5.2.4)."""
    if migration.placed_after is None or migration.plan.strategy is Strategy.OWN:
        return True
    return batch - migration.placed_after > migration.settings.gap_batches


def _instructions(placed: Queue, prepared: Queue) -> Iterable[Instruction]:
    moves = tuple(one.move for one in placed)
    if moves:
        yield Place(moves)
    if prepared:
        yield Snapshot(tuple(one.move.bin for one in prepared))


def _ended(migration: Migration, detail: str, why_not: str, stopped: bool = False) -> Progress:
    waiting = tuple((one.move, why_not) for one in migration.queue)
    left = replace(migration, queue=(), given_up=(*migration.given_up, *waiting))
    return Progress(left, (), _outcome(left, detail, stopped))


def _outcome(migration: Migration, detail: str, stopped: bool = False) -> MigrationOutcome:
    moved, of = migration.moved(), len(migration.plan.moves)
    status = Status.DONE if not migration.given_up else Status.PARTIAL if moved else Status.FAILED
    counted = f"{len(moved)} of {of} bins moved in {migration.batches} batches" if of else ""
    said = "; ".join(filter(None, (detail, counted, *_reasons(migration.given_up), *_found(migration))))
    return MigrationOutcome(
        status, moved, migration.given_up, migration.batches, migration.slowest_seconds, said, stopped
    )


def _reasons(given_up: Iterable[tuple[Move, str]]) -> tuple[str, ...]:
    """Each reason once, with how many moves it stopped."""
    counts: dict[str, int] = {}
    for _, reason in given_up:
        counts[reason] = counts.get(reason, 0) + 1
    return tuple(f"{count} given up: {reason}" for reason, count in counts.items())


def _found(migration: Migration) -> Iterable[str]:
    """What Spark did by itself meanwhile, as after the death of a worker."""
    if migration.found_at_target:
        yield f"{migration.found_at_target} found at the target already"
    if migration.found_elsewhere:
        yield f"{migration.found_elsewhere} found elsewhere than planned, and moved from there"
