"""The queue of moves that have not happened yet: which may be placed now, which are prepared next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.migrate.bins import Bin
from penstock.migrate.migration_settings import MigrationSettings
from penstock.migrate.plan import Move, Strategy


@dataclass(frozen=True, slots=True)
class Pending:
    """A move still to be made; `asked` is the batch after which its snapshot was asked for."""

    move: Move
    tries: int = 0
    asked: int | None = None


Queue: TypeAlias = tuple[Pending, ...]


def heads(queue: Iterable[Pending]) -> Queue:
    """The first move of each bin: one that moves again must arrive first."""
    seen: set[Bin] = set()
    first = []
    for one in queue:
        if one.move.bin not in seen:
            first.append(one)
        seen.add(one.move.bin)
    return tuple(first)


def without(queue: Queue, gone: Iterable[Pending]) -> Queue:
    """The queue without these."""
    taken = {id(one) for one in gone}
    return tuple(one for one in queue if id(one) not in taken)


def exchanged(queue: Queue, old: Pending, new: Pending) -> Queue:
    """The queue with one entry changed in its place."""
    return tuple(new if one is old else one for one in queue)


def asked(queue: Queue, which: Iterable[Pending], batch: int) -> Queue:
    """The queue with these marked: their snapshots are asked for now."""
    chosen = {id(one) for one in which}
    return tuple(replace(one, asked=batch) if id(one) in chosen else one for one in queue)


def to_place(
    queue: Queue,
    strategy: Strategy,
    settings: MigrationSettings,
    bins: int,
    batch: int,
    snapshots: Mapping[Bin, int],
) -> Queue:
    """What may switch in the batch after this one: the next group, as far as its snapshots are there."""
    group = _group(queue, strategy, bins, batch + 1)
    ready = tuple(one for one in group if is_prepared(one, settings, batch, snapshots))
    # all at once means all: it waits for the last snapshot
    return ready if strategy is not Strategy.ALL_AT_ONCE or len(ready) == len(group) else ()


def to_prepare(queue: Queue, strategy: Strategy, bins: int, batch: int) -> Queue:
    """What has no snapshot asked for yet, of the group that follows one batch later."""
    return tuple(one for one in _group(queue, strategy, bins, batch + 2) if one.asked is None)


def is_prepared(one: Pending, settings: MigrationSettings, batch: int, snapshots: Mapping[Bin, int]) -> bool:
    """Whether the bin's snapshot was uploaded, or was waited for long enough."""
    if not settings.prepare:
        return True
    if one.asked is None or one.asked >= batch:
        return False
    newest = snapshots.get(one.move.bin)
    return newest is None or newest > one.asked or batch - one.asked > settings.snapshot_patience


def _group(queue: Queue, strategy: Strategy, bins: int, batch: int) -> Queue:
    first = heads(queue)
    if strategy is Strategy.OWN:
        return tuple(one for one in first if one.move.batch <= batch)
    if strategy is Strategy.BATCHED and first:
        # groups were made so that their moves do not disturb each other: they are not mixed
        first = tuple(one for one in first if one.move.batch == first[0].move.batch)
    return first if strategy is Strategy.ALL_AT_ONCE else first[:bins]
