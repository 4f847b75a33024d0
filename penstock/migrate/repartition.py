"""The number of bins: where it limits the slots that can be used, and what changing it would take.

The number of bins is fixed by the checkpoint, and no placement brings more parallelism than bins. Spark 4.2
and later can rewrite a checkpoint with another number, while the query is stopped.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from penstock.migrate.bins import StateView

FIRST_VERSION = (4, 2)
PROVIDER = "RocksDB"
ROW_SECONDS = 8e-6
"""To load one row of state, and to write one: as seen for the replay of a changelog."""
START_SECONDS = 10.0
"""From the start of a query to its first batch."""


@dataclass(frozen=True, slots=True)
class PauseStep:
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
    steps: tuple[PauseStep, ...]
    obstacle: str | None = None

    @property
    def pause_seconds(self) -> float:
        """The seconds for which the query is expected to stand still."""
        return sum(step.seconds for step in self.steps)

    def words(self) -> str:
        """Say what would be done, with its expected pause, or why it cannot be done."""
        change = f"{self.name}: from {self.bins_before} to {self.bins_after} bins"
        if self.obstacle is not None:
            return f"{change} is not possible: {self.obstacle}"
        steps = ", ".join(f"{step.what} ({step.seconds:.0f} s)" for step in self.steps)
        return f"{change} needs a pause of about {self.pause_seconds:.0f} s: {steps}"


def describe_few_bins(name: str, operator: int, bins: int, slots: int) -> str:
    """Say in one sentence that an operator has fewer bins than the application has slots."""
    return (
        f"operator {operator} of {name} has {bins} bins: of {slots} slots {slots - bins} have no state to "
        "work on; more bins would help, more executors not"
    )


def plan_repartition(
    view: StateView, slots: int, steady_seconds: float, obstacle: str | None = None
) -> Repartition | None:
    """Plan what gives every slot a bin; None where there are enough bins.

    All operators of a query share the number of bins. A bin costs a task in every batch, so there are no more
    than slots.
    """
    before = min(Counter(state.bin.operator for state in view.bins).values(), default=slots)
    if before >= slots:
        return None
    rows = sum(state.rows for state in view.bins)
    here = max(1, sum(worker.slots for worker in view.workers))
    load = rows * ROW_SECONDS
    steps = (
        PauseStep("finish the batch under way and stop the query", steady_seconds),
        # each row is read from the old bins and written to the new ones
        PauseStep("rewrite its state with Spark's checkpoint manager", 2 * load / here),
        PauseStep("start it again from the same checkpoint", START_SECONDS),
        PauseStep("run the first batch, which loads every bin", load / slots + steady_seconds),
    )
    size = sum(state.bytes for state in view.bins)
    return Repartition(view.query, view.name, before, slots, rows, size, steps, obstacle)


def find_repartition_obstacle(spark_version: str, provider: str) -> str | None:
    """Say in one sentence why this Spark cannot repartition a checkpoint; None if it can."""
    found = re.match(r"(\d+)\.(\d+)", spark_version)
    if found is None:
        return f"Spark {spark_version} is not known; {_name_needs()}"
    if (int(found[1]), int(found[2])) < FIRST_VERSION:
        return f"this is Spark {spark_version}; {_name_needs()}"
    if PROVIDER.lower() not in provider.lower():
        return f"its state is kept by {provider.rsplit('.', 1)[-1]}; {_name_needs()}"
    return None


def _name_needs() -> str:
    return f"it takes Spark {'.'.join(map(str, FIRST_VERSION))} and the {PROVIDER} state store"
