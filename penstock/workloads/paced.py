"""Paced operators: an instance sleeps for its records' service time, so that many slots fit on few cores.

A paced operator has a known true rate (one record per `seconds_per_record` of a slot) and costs
almost no processor time, which makes the optimum of an experiment known beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

SHORTEST_SLEEP = 0.001
"""Below a millisecond the timer's own lateness is as large as the sleep: such debts wait."""


@dataclass(slots=True)
class Pacer:
    """Turns records served into time slept; time overslept is taken off the next sleep."""

    seconds_per_record: float
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    debt_seconds: float = field(default=0.0, init=False)

    def serve(self, records: int) -> None:
        """Account for these records, sleeping once the debt is worth it."""
        self.owe(records * self.seconds_per_record)

    def owe(self, seconds: float) -> None:
        """Account for a service time, sleeping once the debt is worth it."""
        self.debt_seconds += seconds
        if self.debt_seconds >= SHORTEST_SLEEP:
            self.settle()

    def settle(self) -> None:
        """Sleep off what is owed."""
        if self.debt_seconds > 0:
            before = self.clock()
            self.sleep(self.debt_seconds)
            self.debt_seconds -= self.clock() - before


def paced(
    batches: Iterator[Any],
    seconds_per_record: float,
    transform: Callable[[Any], Any],
    pacer: Pacer | None = None,
) -> Iterator[Any]:
    """Transform Arrow batches or arrays one by one, each after its service time."""
    pacer = pacer or Pacer(seconds_per_record)
    for batch in batches:
        pacer.serve(len(batch))
        yield transform(batch)
    pacer.settle()
