"""What is seen when a batch has ended, and what can be asked for before the next one begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.migrate.bins import Bin, Worker
from penstock.migrate.plan import Move


@dataclass(frozen=True, slots=True)
class Boundary:
    """A batch has ended: how long it took, where the stores are, who is alive.

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
        """The ids of the workers."""
        return frozenset(worker.worker for worker in self.workers)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Let the next batch upload snapshots of these bins."""

    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Let the next batch run these bins at their targets."""

    moves: tuple[Move, ...]


Instruction: TypeAlias = Snapshot | Place
"""Performed in the order in which they are given."""
