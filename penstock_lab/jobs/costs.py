"""The cost of one record of each job to a slot; `penstock_lab.experiments.field.costs` measures it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one record to a slot at the default arguments; batches and tasks cost more beside it."""

    waiting_seconds: float
    """Spent waiting for an answer: the same on every core."""
    computing_seconds: float
    """Processor time, in Spark and in Python, on one whole core."""
    is_guess: bool = False
    """Whether it was never measured."""

    def slot_seconds(self, core_share: float = 1.0) -> float:
        """Return the time that a record keeps a slot which has this share of a core."""
        return self.waiting_seconds + self.computing_seconds / core_share

    def rate(self, slots: float, core_share: float = 1.0) -> float:
        """Return the records a second that keep so many slots busy all the time."""
        return slots / self.slot_seconds(core_share)


COSTS: Mapping[str, Cost] = {
    # a hash of 200 rounds in Spark itself
    "kafka-windows": Cost(0.0, 400e-6, is_guess=True),
    "small-files-lookup": Cost(0.010, 100e-6, is_guess=True),
    "large-files": Cost(0.0, 115e-6),
    # a fifth of the orders are repeated, and not called for
    "no-trigger": Cost(0.004 * 0.8, 100e-6),
    "available-now": Cost(0.0, 90e-6),
    "static-join": Cost(0.0, 490e-6),
    # every other record is an order, and hashed
    "stream-join": Cost(0.0, 250e-6, is_guess=True),
    "deduplication": Cost(0.0, 90e-6),
    "sessions": Cost(0.0, 400e-6, is_guess=True),
    "three-jobs": Cost(0.0, 100e-6),
    "two-queries": Cost(0.0, 125e-6),
    "numpy-scoring": Cost(0.0, 170e-6),
    "remote-lookup": Cost(0.015, 500e-6),
    "hot-key": Cost(0.0, 150e-6),
    "four-partitions": Cost(0.0, 550e-6),
}
