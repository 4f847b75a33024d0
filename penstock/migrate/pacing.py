"""One batch boundary of a migration: what is seen, which moves may be placed, and how many at once.

The pace of an optimized plan begins with one bin, measures what it cost, and grows or shrinks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from penstock.dataflow.moves import Bin, Move, Strategy
from penstock.migrate.bins import Worker
from penstock.migrate.settings import MigrationSettings

GROWTH = 2
"""At most twice as many bins as were just measured: a cost seen at one bin says little of sixteen."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The end of a batch: how long it took, where the stores are, who is alive.

    `snapshots` has the newest uploaded snapshot of each bin where it is known; version v holds the state
    after batch v − 1. `stop` is the reason why somebody asks to stop.
    """

    batch: int
    seconds: float
    locations: Mapping[Bin, str]
    workers: tuple[Worker, ...]
    snapshots: Mapping[Bin, int] = field(default_factory=dict)
    stop: str | None = None

    def alive(self) -> frozenset[str]:
        """Return the ids of the workers."""
        return frozenset(worker.worker for worker in self.workers)

    def holds(self, move: Move) -> bool:
        """Tell whether the bin is at the move's target, and the target alive."""
        return self.locations.get(move.bin) == move.target and move.target in self.alive()


@dataclass(frozen=True, slots=True)
class UploadSnapshots:
    """An instruction: let the next batch upload snapshots of these bins."""

    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class PlaceBins:
    """An instruction: let the next batch run these bins at their targets."""

    moves: tuple[Move, ...]


BoundaryInstruction: TypeAlias = UploadSnapshots | PlaceBins
"""Performed in the order in which they are given, before the next batch begins."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A move to be made or made; its `move` names the source where the bin was seen last.

    `asked` is the batch after which its snapshot was asked for. `source_died`: the source was dead when the
    bin was placed. `found`: the bin was seen at its target though nobody had placed it there.
    """

    move: Move
    planned_source: str
    tries: int = 0
    asked: int | None = None
    source_died: bool = False
    found: bool = False


Queue: TypeAlias = tuple[Pending, ...]


def take_heads(queue: Iterable[Pending]) -> Queue:
    """Take the first move of each bin: one that moves again must arrive first."""
    first: dict[Bin, Pending] = {}
    for one in queue:
        first.setdefault(one.move.bin, one)
    return tuple(first.values())


def remove_from(queue: Queue, gone: Iterable[Pending]) -> Queue:
    """Return the queue without these."""
    taken = {id(one) for one in gone}
    return tuple(one for one in queue if id(one) not in taken)


def exchange_in(queue: Queue, old: Pending, new: Pending) -> Queue:
    """Return the queue with one entry changed in its place."""
    return tuple(new if one is old else one for one in queue)


def mark_asked(queue: Queue, which: Iterable[Pending], batch: int) -> Queue:
    """Return the queue with these marked: their snapshots are asked for now."""
    chosen = {id(one) for one in which}
    return tuple(replace(one, asked=batch) if id(one) in chosen else one for one in queue)


def choose_to_place(
    queue: Queue, strategy: Strategy, settings: MigrationSettings, bins: int, boundary: Boundary
) -> Queue:
    """Choose what may switch in the batch after this one: the next group, as far as it has its snapshots."""
    group = _next_group(queue, strategy, bins, boundary.batch + 1, boundary.workers)
    ready = tuple(one for one in group if _is_prepared(one, settings, boundary))
    # all at once means all: it waits for the last snapshot
    return ready if strategy is not Strategy.ALL_AT_ONCE or len(ready) == len(group) else ()


def choose_to_prepare(queue: Queue, strategy: Strategy, bins: int, boundary: Boundary) -> Queue:
    """Choose what has no snapshot asked for yet, of the group that follows one batch later."""
    group = _next_group(queue, strategy, bins, boundary.batch + 2, boundary.workers)
    return tuple(one for one in group if one.asked is None)


def take_undisturbed(queue: Queue, workers: Iterable[Worker]) -> Queue:
    """Take moves in their order, without those that would disturb one that was taken (section 5.2.4).

    No worker loads, or gives away, more bins than it has slots; one that died gives nothing away. A planned
    group is at the head of the queue and taken whole, so this needs no more steps than were planned.
    """
    slots = {worker.worker: max(1, worker.slots) for worker in workers}
    given: Counter[str] = Counter()
    loaded: Counter[str] = Counter()
    taken = []
    for one in queue:
        source, target = one.move.source, one.move.target
        gives = source not in slots or given[source] < slots[source]
        if gives and loaded[target] < slots.get(target, 1):
            given[source] += 1
            loaded[target] += 1
            taken.append(one)
    return tuple(taken)


@dataclass(frozen=True, slots=True)
class Pace:
    """The number of bins that may move in the next batch; `cost_seconds` is what one bin was seen to add."""

    bins: int
    most: int
    budget_ratio: float
    cost_seconds: float | None = None

    def budget(self, steady_seconds: float) -> float:
        """Return how long a batch may take."""
        return self.budget_ratio * steady_seconds


def choose_first_pace(strategy: Strategy, settings: MigrationSettings, moves: int) -> Pace:
    """Begin an optimized plan with one bin, and others with as many as they planned."""
    if strategy is Strategy.FLUID:
        return Pace(1, 1, settings.latency_budget)
    if strategy is Strategy.OPTIMIZED:
        return Pace(1, settings.bins_per_batch, settings.latency_budget)
    most = settings.bins_per_batch if strategy is Strategy.BATCHED else max(1, moves)
    return Pace(most, most, settings.latency_budget)


def adapt_pace(pace: Pace, moved: int, seconds: float, steady_seconds: float) -> Pace:
    """Return the pace after a batch in which so many bins moved.

    Over the budget it falls to half of what was tried, or to what the measured cost allows if that is less.
    Within the budget it rises to what the cost allows, at most to twice what was tried; a batch that had
    little to move takes nothing back.
    """
    if moved <= 0 or steady_seconds <= 0:
        return pace
    cost = max(0.0, seconds - steady_seconds) / moved
    # the mean of old and new: one batch that happened to be quick must not double the pace by itself
    smoothed = cost if pace.cost_seconds is None else (cost + pace.cost_seconds) / 2
    room = pace.budget(steady_seconds) - steady_seconds
    fitting = int(room / smoothed) if smoothed > 0 else pace.most
    if seconds > pace.budget(steady_seconds):
        bins = min(moved // 2, fitting)
    else:
        bins = min(max(fitting, moved), max(moved * GROWTH, pace.bins))
    return replace(pace, bins=max(1, min(bins, pace.most)), cost_seconds=smoothed)


def _is_prepared(one: Pending, settings: MigrationSettings, boundary: Boundary) -> bool:
    """Tell whether the bin's snapshot was uploaded, or was waited for long enough."""
    if not settings.prepare:
        return True
    if one.asked is None or one.asked >= boundary.batch:
        return False
    newest = boundary.snapshots.get(one.move.bin)
    waited = boundary.batch - one.asked
    return newest is None or newest > one.asked or waited > settings.snapshot_patience


def _next_group(queue: Queue, strategy: Strategy, bins: int, batch: int, workers: Iterable[Worker]) -> Queue:
    first = take_heads(queue)
    if strategy is Strategy.OWN:
        return tuple(one for one in first if one.move.batch <= batch)
    if strategy is Strategy.OPTIMIZED:
        first = take_undisturbed(first, workers)
    return first if strategy is Strategy.ALL_AT_ONCE else first[:bins]
