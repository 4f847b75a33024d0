"""Moves of state as plain data: bins, and plans of when each goes from one worker to another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.errors import BadInput


class Strategy(Enum):
    """How the changes from one placement to another are revealed (sections 5.1.2 and 5.2.4)."""

    FLUID = "fluid"
    """A bin at a time."""
    BATCHED = "batched"
    """A fixed number of bins at a time."""
    OPTIMIZED = "optimized"
    """Bins at a time that do not disturb each other, as many of them as the latency budget bears."""
    ALL_AT_ONCE = "all-at-once"
    """Everything in one batch, as a restart would."""
    OWN = "own"
    """A plan that a user wrote: each move at the batch that it names."""

    @staticmethod
    def parse(text: str) -> Strategy:
        """Return the strategy of this name, among those that Penstock follows by itself."""
        for strategy in Strategy:
            if strategy.value == text and strategy is not Strategy.OWN:
                return strategy
        raise BadInput(f"unknown strategy {text!r}: fluid, batched, optimized or all-at-once is expected")


@dataclass(frozen=True, slots=True, order=True)
class Bin:
    """One state partition of one stage with all its stores; operators that share a stage share their bins."""

    query: str
    operator: int
    partition: int

    def __str__(self) -> str:
        return f"{self.query}/{self.operator}/{self.partition}"

    @staticmethod
    def parse(text: str) -> Bin:
        """Read a bin that is written as query/operator/partition."""
        parts = text.rsplit("/", 2)
        if len(parts) != 3 or not (parts[0] and parts[1].isdecimal() and parts[2].isdecimal()):
            raise BadInput(f"{text!r} is no bin: query/operator/partition is expected")
        return Bin(parts[0], int(parts[1]), int(parts[2]))


@dataclass(frozen=True, slots=True)
class Move:
    """An update of the configuration: from this batch on the bin is at the target (equation 5.3)."""

    batch: int
    bin: Bin
    source: str
    target: str

    def plain(self) -> dict[str, Any]:
        """Return this move as plain data; its query is named by the plan."""
        bin_ = {"operator": self.bin.operator, "partition": self.bin.partition}
        return {"batch": self.batch, **bin_, "from": self.source, "to": self.target}


@dataclass(frozen=True, slots=True)
class Plan:
    """An ordered list of moves for one query, with the strategy and the reason behind it."""

    query: str
    moves: tuple[Move, ...]
    strategy: Strategy
    reason: str

    def last_batch(self) -> int | None:
        """Return the batch at which the last move takes effect."""
        return max((move.batch for move in self.moves), default=None)

    def plain(self) -> dict[str, Any]:
        """Return this plan as plain data, as the journal keeps it and people read it."""
        return {
            "query": self.query,
            "strategy": self.strategy.value,
            "reason": self.reason,
            "moves": [move.plain() for move in self.moves],
        }
