"""An action that has begun and has not ended, and what a window says of it meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import HELD_UTILISATION, Action, Hold, Proposal, Scale
from penstock.decide.verdict import Accepted, Verdict

HIGHER_LOAD = 1.2
"""Times the load at its begin that lets a move of state give way to another size."""

LONG_MOVE = 60.0
"""Seconds after which a move of state gives way at the same load, too: a backlog makes its batches long."""

UNNEEDED_WINDOWS = 2
"""Windows in a row that must need no more than is there before an order for executors is withdrawn."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An action under way, and the load at its begin; `by_hand` was ordered."""

    action_id: int
    action: Action
    begun_at: float
    offered: float
    failed_polls: int = 0
    unneeded: int = 0
    """Windows in a row in which what is there was enough, though more was ordered."""
    by_hand: bool = False

    def may_give_way(self, now: float, offered: float) -> bool:
        """Tell whether a move of state gives way to growth at this load; an order by hand never does.

        At the same load the size was right when the move began, and what looks too small in its first batches
        is the move itself.
        """
        is_long = now - self.begun_at > LONG_MOVE
        return not self.by_hand and (is_long or offered > HIGHER_LOAD * self.offered)


def is_growth(verdict: Verdict, window: ApplicationWindow) -> bool:
    """Tell whether a verdict lets the application grow."""
    action = verdict.action if isinstance(verdict, Accepted) else None
    return isinstance(action, Scale) and grows(action, window)


def is_enough(answer: Proposal | NotReady, window: ApplicationWindow) -> bool:
    """Tell whether a policy asks for no more than is there; one that merely waits has not said so."""
    if isinstance(answer, Hold):
        return answer.figures.get(HELD_UTILISATION, 1.0) < 1
    return isinstance(answer, Scale) and not grows(answer, window)


def grows(scale: Scale, window: ApplicationWindow) -> bool:
    """Tell whether some unit would have more than the window had."""
    return any(size > window.parallelism.get(unit, size) for unit, size in scale.planned.items())
