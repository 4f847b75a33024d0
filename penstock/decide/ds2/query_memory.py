"""The memory of one query on slots: its costs, its last need, and what the tasks of a long batch told."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from penstock.dataflow.costs.memory import CostMemory
from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import RunningBatch
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import SlotQuery, SlotWindow
from penstock.decide.ds2.slot_sizing import Held, QuerySizing

TELLS_AGAIN = 60.0
"""Seconds after which a batch in which slots came may ask for more of them: the tasks on them begin cold."""

MOST_WAIT = 60.0
"""Seconds that growth waits at most for batches that get cheaper."""


@dataclass(slots=True)
class QueryMemory:
    """The memory of one query of an application on slots."""

    name: str
    graph: LogicalGraph
    memory: CostMemory
    last_slots: int | None = None
    """The slots that it was last found to need."""
    last_offered: float = 0.0
    """Records per second at which it was last sized; 0 since it was idle."""
    told: QuerySizing | None = None
    """The need that the tasks of a long batch showed, before any costs were known."""
    slots: int | None = None
    """The slots of the last window."""
    since: float = -math.inf
    """Since when there are more than before; before all time where none came."""
    waiting_since: float | None = None
    """Since when growth waits for batches that get cheaper; None where none was asked for."""

    def note_slots(self, window: SlotWindow) -> None:
        """Note when slots have come."""
        if self.slots is not None and window.slots > self.slots:
            self.since = window.end
        self.slots = window.slots

    def tells_growth(self, running: RunningBatch, now: float) -> bool:
        """Tell whether a running batch is evidence for growth: not for a minute once slots came meanwhile."""
        return running.start >= self.since or now - self.since >= TELLS_AGAIN

    def repeat_told(
        self, by_tasks: QuerySizing | None, query: SlotQuery, held: Held, overdue: str | None
    ) -> QuerySizing | None:
        """Say what tasks told again while the next batch outlasts its period, on the same slots.

        That one may show nothing for minutes. A batch that ends speaks for itself.
        """
        if by_tasks is not None:
            self.told = by_tasks
            return by_tasks
        if any(batch.settled for batch in query.batches):
            self.told = None
        if self.told is None or overdue is None or self.told.seen_slots != held.slots:
            return None
        return replace(self.told, advice=overdue)

    def await_relief(self, sizing: QuerySizing | NotReady, held: Held, now: float) -> QuerySizing | NotReady:
        """Keep what is held for one batch more where the newest shows that growth may not be needed.

        Not for longer than a minute: batches that are long and short in turn would hold growth up for ever.
        """
        if isinstance(sizing, NotReady) or sizing.slots <= held.slots:
            self.waiting_since = None
            return sizing
        relief = self.memory.find_relief(held.slots, sizing.demand.offered_per_second, sizing.period_seconds)
        begun = now if self.waiting_since is None else self.waiting_since
        if relief is None or now - begun > MOST_WAIT:
            return sizing
        self.waiting_since = begun
        return replace(
            sizing,
            slots=held.slots,
            batch_seconds=sizing.seconds_on(held.slots),
            waits=f"the {sizing.slots} slots that costs so far ask for wait for one batch more: {relief}",
            may_shrink=False,
        )
