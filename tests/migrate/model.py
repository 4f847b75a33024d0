"""A made-up cluster that runs one query and obeys a migration, and may lose moves and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.migrate.bins import Bin, BinState, StateView, Worker
from penstock.migrate.boundary import Boundary, Instruction, Place, Snapshot
from penstock.migrate.configuration import Execution
from penstock.migrate.migration import Migration, Progress, step
from penstock.migrate.plan import Move

QUERY = "q"


def a_bin(partition: int, operator: int = 0) -> Bin:
    return Bin(QUERY, operator, partition)


def a_worker(name: str, slots: int = 2) -> Worker:
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


@dataclass
class Cluster:
    """Runs batch after batch; `loses(batch, bin)` says which placements Spark drops."""

    locations: dict[Bin, str]
    workers: dict[str, Worker]
    batch: int = 10
    steady: float = 1.0
    per_bin: float = 0.1
    loses: Callable[[int, Bin], bool] = lambda _batch, _bin: False
    uploads: Callable[[int, Bin], bool] = lambda _batch, _bin: True
    executions: list[Execution] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    moved_in: dict[int, set[Bin]] = field(default_factory=dict)
    snapshots: dict[Bin, int] = field(default_factory=dict)
    _wanted: dict[Bin, str] = field(default_factory=dict)
    _asked: set[Bin] = field(default_factory=set)

    @staticmethod
    def of(view: StateView, **more: object) -> Cluster:
        workers = {worker.worker: worker for worker in view.workers}
        return Cluster(dict(view.placement()), workers, view.batch, **more)  # type: ignore[arg-type]

    def obey(self, instructions: Iterable[Instruction]) -> None:
        for one in instructions:
            if isinstance(one, Place):
                self._wanted.update({move.bin: move.target for move in one.moves})
            elif isinstance(one, Snapshot):
                self._asked.update(one.bins)

    def kill(self, worker: str) -> None:
        """The worker is gone, and Spark spreads its bins over the others."""
        del self.workers[worker]
        left = sorted(self.workers)
        for number, bin_ in enumerate(sorted(self.locations)):
            if self.locations[bin_] == worker and left:
                self.locations[bin_] = left[number % len(left)]

    def run(self) -> Boundary:
        """One batch: the placements that hold take effect, and every bin runs once."""
        self.batch += 1
        taken = set()
        for bin_, target in self._wanted.items():
            if target in self.workers and not self.loses(self.batch, bin_):
                taken |= {bin_} if self.locations[bin_] != target else set()
                self.locations[bin_] = target
        self.snapshots |= {one: self.batch + 1 for one in self._asked if self.uploads(self.batch, one)}
        self._wanted, self._asked = {}, set()
        self.moved_in[self.batch] = taken
        self.executions += [Execution(self.batch, one, at) for one, at in sorted(self.locations.items())]
        self.seconds.append(self.steady + self.per_bin * len(taken))
        workers = tuple(self.workers.values())
        return Boundary(self.batch, self.seconds[-1], dict(self.locations), workers, dict(self.snapshots))


def play(cluster: Cluster, progress: Progress, most: int = 500) -> Progress:
    """Run batches until the migration has ended."""
    for _ in range(most):
        if progress.outcome is not None:
            return progress
        cluster.obey(progress.instructions)
        progress = step(progress.migration, cluster.run())
    raise AssertionError(f"no end after {most} batches: {_queued(progress.migration)} still wait")


def _queued(migration: Migration) -> int:
    return len(migration.queue)
