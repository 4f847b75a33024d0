"""Where more slots are wanted than there are bins: say so, and what changing their number would take.

The number of bins is fixed by the checkpoint; no placement brings more parallelism than bins. Spark 4.2 and
later can rewrite a checkpoint with another number, while the query is stopped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.migrate.bins import StateView

FIRST_VERSION = (4, 2)
PROVIDER = "RocksDB"


@dataclass(frozen=True, slots=True)
class BinsLimit:
    """An operator has fewer bins than the application would have slots."""

    query: str
    name: str
    operator: int
    bins: int
    slots: int

    @property
    def idle_slots(self) -> int:
        """Slots that this operator cannot use."""
        return self.slots - self.bins

    def words(self) -> str:
        """One sentence for people."""
        return (
            f"operator {self.operator} of {self.name} has {self.bins} bins: of {self.slots} slots "
            f"{self.idle_slots} have no state to work on; more bins would help, more executors not"
        )


@dataclass(frozen=True, slots=True)
class PauseCosts:
    """What the parts of a repartitioning cost, in seconds.

    `row_seconds` is what it takes to load one row of state, and what it takes to write one; 8 µs was seen for
    the replay of a changelog. `start_seconds` is from the start of the query to its first batch.
    """

    steady_seconds: float
    row_seconds: float = 8e-6
    start_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Step:
    """One part of an action that stops the query, and how long the query stands still for it."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Repartition:
    """Stop, repartition, restart: an action that is only taken when somebody asks for it."""

    query: str
    name: str
    bins_before: int
    bins_after: int
    rows: int
    bytes: int
    steps: tuple[Step, ...]
    obstacle: str | None = None

    @property
    def pause_seconds(self) -> float:
        """How long the query is expected to stand still."""
        return sum(step.seconds for step in self.steps)

    def words(self) -> str:
        """What would be done, with its expected pause; or why it cannot be."""
        change = f"{self.name}: from {self.bins_before} to {self.bins_after} bins"
        if self.obstacle is not None:
            return f"{change} is not possible: {self.obstacle}"
        steps = ", ".join(f"{step.what} ({step.seconds:.0f} s)" for step in self.steps)
        return f"{change} needs a pause of about {self.pause_seconds:.0f} s: {steps}"


def bins_limits(view: StateView, slots: int) -> tuple[BinsLimit, ...]:
    """The operators that could not use so many slots."""
    counts: dict[int, int] = {}
    for state in view.bins:
        counts[state.bin.operator] = counts.get(state.bin.operator, 0) + 1
    return tuple(
        BinsLimit(view.query, view.name, operator, bins, slots)
        for operator, bins in sorted(counts.items())
        if bins < slots
    )


def repartition(
    view: StateView, slots: int, costs: PauseCosts, obstacle: str | None = None
) -> Repartition | None:
    """What it would take to give every slot a bin; nothing where there are enough of them.

    All operators of a query share the number of bins. A bin costs a task in every batch, so there are no more
    than slots.
    """
    limits = bins_limits(view, slots)
    if not limits:
        return None
    rows = sum(state.rows for state in view.bins)
    here = max(1, sum(worker.slots for worker in view.workers))
    load = rows * costs.row_seconds
    steps = (
        Step("finish the batch under way and stop the query", costs.steady_seconds),
        # each row is read from the old bins and written to the new ones
        Step("rewrite its state with Spark's checkpoint manager", 2 * load / here),
        Step("start it again from the same checkpoint", costs.start_seconds),
        Step("run the first batch, which loads every bin", load / slots + costs.steady_seconds),
    )
    size = sum(state.bytes for state in view.bins)
    before = min(limit.bins for limit in limits)
    return Repartition(view.query, view.name, before, slots, rows, size, steps, obstacle)


def repartition_obstacle(spark_version: str, provider: str) -> str | None:
    """Why this Spark cannot repartition a checkpoint, in one sentence."""
    found = re.match(r"(\d+)\.(\d+)", spark_version)
    if found is None:
        return f"Spark {spark_version} is not known; {_needed()}"
    if (int(found[1]), int(found[2])) < FIRST_VERSION:
        return f"this is Spark {spark_version}; {_needed()}"
    if PROVIDER.lower() not in provider.lower():
        return f"its state is kept by {provider.rsplit('.', 1)[-1]}; {_needed()}"
    return None


def _needed() -> str:
    return f"it takes Spark {'.'.join(map(str, FIRST_VERSION))} and the {PROVIDER} state store"
