"""The floor of queries in real-time mode: they run the tasks of all their stages at once, or die."""

from __future__ import annotations

import math

from penstock.dataflow.window import SlotWindow
from penstock.decide.manager.guardrails import Opinion, Situation, limit_change
from penstock.decide.policy import Scale


class RealTimeFloor:
    """Takes no slot that a query in real-time mode needs, whoever asks: a policy, the bounds, a rollback."""

    name = "real-time"

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Raise a reduction to what such queries need, or to what is held."""
        window = situation.window
        if not isinstance(window, SlotWindow) or not window.reserved_slots:
            return scale
        floor = math.ceil(window.reserved_slots / max(1, window.slots_per_executor))
        names = ", ".join(window.reserved_for)
        reason = f"{window.reserved_slots} slots stay for the tasks of {names}, which all run at once"
        return limit_change(
            self.name, scale, situation.held, lambda _, wanted, held: max(wanted, min(held, floor)), reason
        )
