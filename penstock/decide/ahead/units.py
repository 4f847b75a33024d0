"""All that the planning controller knows of one operator, or of the executors."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.decide.ahead.capacity import CostLine
from penstock.decide.ahead.plan import Deaths, Savings


@dataclass(slots=True)
class Unit:
    """One operator, or the executors: costs, deaths, what smaller sizes would have saved, what is held."""

    cost: CostLine = field(default_factory=CostLine)
    deaths: Deaths = field(default_factory=Deaths)
    savings: Savings = field(default_factory=Savings)
    held: int = 0
    held_since: float = 0.0
    asked: int = 1
    """What the last window asked for; 1 where none has since the size changed."""
    per_offered: float = 0.0
    """Records that it is fed for each one that sources are offered."""

    def hold(self, held: int, now: float, price: float) -> None:
        """Note what is held; a price is what a change costs, in seconds of all that is held."""
        if held != self.held:
            self.savings.change(now, self.held, held, price * self.held)
            self.held, self.held_since, self.asked = held, now, 1
