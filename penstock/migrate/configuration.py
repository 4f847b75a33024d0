"""The configuration function (batch, bin) → worker and the three properties of a migration.

Time is the batch id, a committed batch is the frontier, and updates are moves: plain data, each with the
batch at which it takes effect (section 5.1). What the tasks of each batch did is checked against it:

    property 5, correctness   every bin sees each batch once, in order          out_of_order()
    property 6, migration     a bin's batch runs where the configuration says   misplaced()
    property 7, completion    once the last update's batch is committed, every  unfinished()
                              bin is at its last worker
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import BadInput
from penstock.migrate.bins import Bin
from penstock.migrate.plan import Move


@dataclass(frozen=True, slots=True)
class Execution:
    """A bin's batch was computed and committed at this worker."""

    batch: int
    bin: Bin
    worker: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """Equation 5.2 over bins: where each bin is at each batch, from a first placement and updates to it."""

    first: Mapping[Bin, str]
    updates: tuple[Move, ...] = ()

    def __post_init__(self) -> None:
        at: dict[Bin, tuple[int, str]] = {bin_: (-1, worker) for bin_, worker in self.first.items()}
        for move in sorted(self.updates, key=lambda one: one.batch):
            if move.bin not in at:
                raise BadInput(f"the configuration has no bin {move.bin}")
            batch, worker = at[move.bin]
            if batch == move.batch:
                raise BadInput(f"bin {move.bin} would be at two workers from batch {batch} on")
            if worker != move.source:
                raise BadInput(f"bin {move.bin} is at {worker} before batch {move.batch}, not {move.source}")
            at[move.bin] = (move.batch, move.target)

    def updated(self, moves: Iterable[Move]) -> Configuration:
        """This configuration with further updates."""
        return Configuration(self.first, (*self.updates, *moves))

    def worker(self, batch: int, bin_: Bin) -> str:
        """Where the bin is at this batch: as its last update not after the batch says."""
        of_bin = sorted((move for move in self.updates if move.bin == bin_), key=lambda move: move.batch)
        before = bisect_right(of_bin, batch, key=lambda move: move.batch)
        return of_bin[before - 1].target if before else self.first[bin_]

    def placement(self, batch: int) -> dict[Bin, str]:
        """Where every bin is at this batch."""
        return {bin_: self.worker(batch, bin_) for bin_ in self.first}

    def settled_from(self) -> int:
        """The batch from which on nothing changes any more."""
        return max((move.batch for move in self.updates), default=0)


def out_of_order(executions: Iterable[Execution]) -> tuple[str, ...]:
    """What breaks property 5: a batch that a bin saw twice, missed, or saw too early."""
    last: dict[Bin, int] = {}
    broken = []
    for one in executions:
        before = last.get(one.bin)
        if before is not None and one.batch != before + 1:
            broken.append(f"bin {one.bin} ran batch {one.batch} after batch {before}")
        last[one.bin] = one.batch
    return tuple(broken)


def misplaced(configuration: Configuration, executions: Iterable[Execution]) -> tuple[Execution, ...]:
    """What breaks property 6: the executions at a worker other than the configuration's."""
    return tuple(one for one in executions if one.worker != configuration.worker(one.batch, one.bin))


def unfinished(configuration: Configuration, committed: int, locations: Mapping[Bin, str]) -> tuple[Bin, ...]:
    """What breaks property 7: bins not at their last worker although the frontier is past the updates."""
    if committed < configuration.settled_from():
        return ()
    wanted = configuration.placement(committed)
    return tuple(sorted(bin_ for bin_, worker in wanted.items() if locations.get(bin_) != worker))
