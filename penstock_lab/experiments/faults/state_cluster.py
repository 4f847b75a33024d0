"""A made-up cluster that runs one query and obeys a migration, and may lose moves, bins and workers.

Its runs are checked against the configuration function of section 5.1, and its three properties:

    property 5, correctness   every bin sees each batch once, in order          find_out_of_order()
    property 6, migration     a bin's batch runs where the configuration says   find_misplaced()
    property 7, completion    once the last update's batch is committed, every  find_unfinished()
                              bin is at its last worker
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.dataflow.moves import Bin, Move
from penstock.errors import BadInput
from penstock.migrate.bins import BinState, StateView, Worker
from penstock.migrate.migration import MigrationProgress, advance_migration
from penstock.migrate.pacing import Boundary, BoundaryInstruction, PlaceBins, UploadSnapshots

QUERY = "q"


def a_bin(partition: int, operator: int = 0) -> Bin:
    """Return a bin of the query."""
    return Bin(QUERY, operator, partition)


def a_worker(name: str, slots: int = 2) -> Worker:
    """Return a worker on a host of its own."""
    return Worker(name, f"host-{name}", slots)


def a_view(
    placed: dict[str, Iterable[int]],
    slots: int = 2,
    loads: Callable[[int], float] = lambda _: 1.0,
    sizes: Callable[[int], int] = lambda _: 100,
    batch: int = 10,
) -> StateView:
    """Bins of one operator by worker; every named worker is there, with bins or without."""
    bins = [
        BinState(a_bin(number), worker, rows=10, bytes=sizes(number), load_seconds=loads(number))
        for worker, numbers in placed.items()
        for number in numbers
    ]
    workers = tuple(a_worker(name, slots) for name in placed)
    return StateView(QUERY, "counts", batch, tuple(sorted(bins, key=lambda one: one.bin)), workers)


def moves(*entries: tuple[int, str, str], batch: int = 11) -> tuple[Move, ...]:
    """(partition, from, to), each a batch after the one before."""
    return tuple(Move(batch + i, a_bin(p), a, b) for i, (p, a, b) in enumerate(entries))


@dataclass(frozen=True, slots=True)
class BinRun:
    """One batch of one bin, computed and committed at this worker."""

    batch: int
    bin: Bin
    worker: str


@dataclass
class Cluster:
    """Runs batch after batch; `loses(batch, bin)` says which placements Spark drops.

    `strays(batch, bin)` says where else a bin's task runs, whatever was wanted: its executor was busy for too
    long. A bin is said to be where its last task ran, also when that worker has died since.
    """

    locations: dict[Bin, str]
    workers: dict[str, Worker]
    batch: int = 10
    steady: float = 1.0
    per_bin: float = 0.1
    loses: Callable[[int, Bin], bool] = lambda _batch, _bin: False
    strays: Callable[[int, Bin], str | None] = lambda _batch, _bin: None
    uploads: Callable[[int, Bin], bool] = lambda _batch, _bin: True
    executions: list[BinRun] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    moved_in: dict[int, set[Bin]] = field(default_factory=dict)
    snapshots: dict[Bin, int] = field(default_factory=dict)
    _wanted: dict[Bin, str] = field(default_factory=dict)
    _asked: set[Bin] = field(default_factory=set)

    @staticmethod
    def of(view: StateView, **more: object) -> Cluster:
        """Make the cluster that a view shows."""
        workers = {worker.worker: worker for worker in view.workers}
        return Cluster(dict(view.placement()), workers, view.batch, **more)  # type: ignore[arg-type]

    def obey(self, instructions: Iterable[BoundaryInstruction]) -> None:
        """Take up what is to take effect with the next batch."""
        for one in instructions:
            if isinstance(one, PlaceBins):
                self._wanted.update({move.bin: move.target for move in one.moves})
            elif isinstance(one, UploadSnapshots):
                self._asked.update(one.bins)

    def forget_orders(self) -> None:
        """Drop what was to take effect with the next batch: whoever asked for it is gone."""
        self._wanted, self._asked = {}, set()

    def kill(self, worker: str) -> None:
        """The worker is gone; with the next batch Spark spreads its bins over the others."""
        del self.workers[worker]

    def run(self) -> Boundary:
        """One batch: the placements that hold take effect, and every bin runs once."""
        self.batch += 1
        taken = {bin_ for bin_, target in self._wanted.items() if self._takes(bin_, target)}
        self.locations |= {bin_: self._wanted[bin_] for bin_ in taken}
        for number, bin_ in enumerate(sorted(self.locations)):
            if self.locations[bin_] not in self.workers and self.workers:
                self.locations[bin_] = sorted(self.workers)[number % len(self.workers)]
            strayed = self.strays(self.batch, bin_)
            if strayed in self.workers:
                self.locations[bin_] = strayed
        self.snapshots |= {one: self.batch + 1 for one in self._asked if self.uploads(self.batch, one)}
        self._wanted, self._asked = {}, set()
        self.moved_in[self.batch] = taken
        self.executions += [BinRun(self.batch, one, at) for one, at in sorted(self.locations.items())]
        self.seconds.append(self.steady + self.per_bin * len(taken))
        return self.look()

    def look(self) -> Boundary:
        """The end of the last batch, as it is seen now."""
        seconds, workers = self.seconds[-1] if self.seconds else self.steady, tuple(self.workers.values())
        return Boundary(self.batch, seconds, dict(self.locations), workers, dict(self.snapshots))

    def _takes(self, bin_: Bin, target: str) -> bool:
        elsewhere = self.locations[bin_] != target
        return elsewhere and target in self.workers and not self.loses(self.batch, bin_)


def play(cluster: Cluster, progress: MigrationProgress, most: int = 500) -> MigrationProgress:
    """Run batches until the migration has ended."""
    for _ in range(most):
        if progress.outcome is not None:
            return progress
        cluster.obey(progress.instructions)
        progress = advance_migration(progress.migration, cluster.run())
    raise AssertionError(f"no end after {most} batches: {len(progress.migration.queue)} still wait")


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

    def worker(self, batch: int, bin_: Bin) -> str:
        """Return where the bin is at this batch: its last update up to the batch decides."""
        of_bin = sorted((move for move in self.updates if move.bin == bin_), key=lambda move: move.batch)
        before = bisect_right(of_bin, batch, key=lambda move: move.batch)
        return of_bin[before - 1].target if before else self.first[bin_]

    def placement(self, batch: int) -> dict[Bin, str]:
        """Return where every bin is at this batch."""
        return {bin_: self.worker(batch, bin_) for bin_ in self.first}

    def settled_from(self) -> int:
        """Return the batch from which on nothing changes any more."""
        return max((move.batch for move in self.updates), default=0)


def find_out_of_order(runs: Iterable[BinRun]) -> tuple[str, ...]:
    """Find breaches of property 5: batches that a bin saw twice, missed, or saw too early."""
    last: dict[Bin, int] = {}
    broken = []
    for run in runs:
        before = last.get(run.bin)
        if before is not None and run.batch != before + 1:
            broken.append(f"bin {run.bin} ran batch {run.batch} after batch {before}")
        last[run.bin] = run.batch
    return tuple(broken)


def find_misplaced(configuration: Configuration, runs: Iterable[BinRun]) -> tuple[BinRun, ...]:
    """Find breaches of property 6: runs at a worker other than the configuration's."""
    return tuple(run for run in runs if run.worker != configuration.worker(run.batch, run.bin))


def find_unfinished(
    configuration: Configuration, committed: int, locations: Mapping[Bin, str]
) -> tuple[Bin, ...]:
    """Find breaches of property 7: bins not at their last worker once the frontier has passed the updates."""
    if committed < configuration.settled_from():
        return ()
    wanted = configuration.placement(committed)
    return tuple(sorted(bin_ for bin_, worker in wanted.items() if locations.get(bin_) != worker))
