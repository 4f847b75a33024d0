"""The mover of an application's state, as the loop, the actuators and people use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from penstock.dataflow.moves import Plan, Strategy
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import BINS, MoveState
from penstock.migrate.bins import StateView

Planned: TypeAlias = Sequence[tuple[StateView, Plan]]
"""Plans, each with the view that it was made from."""


class MovesEnded(NamedTuple):
    """The end of all moves that were begun together."""

    status: Status
    moved: int
    detail: str

    def outcome(self, action: MoveState, seconds: float) -> Outcome:
        """Return the outcome of the action that began them."""
        return Outcome(
            self.status, action.planned, action.planned, {BINS: self.moved}, max(0.0, seconds), self.detail
        )


class MoveProposer(Protocol):
    """The part of a mover that the loop asks; raises PenstockError and nothing else on purpose."""

    def propose(self, now: float, window: ApplicationWindow) -> MoveState | None:
        """Propose moves of state that are worth their while."""

    def stop(self, reason: str) -> bool:
        """Ask the moves to stop at the next batch boundary; tell whether there were any."""

    def moving(self) -> bool:
        """Tell whether state moves."""


class Mover(MoveProposer, Protocol):
    """Looks where state lies, plans, and carries plans out: `spark_mover.py` for Spark."""

    def obstacle(self) -> str | None:
        """Say in one sentence why state cannot be moved here."""

    def views(self) -> tuple[StateView, ...]:
        """Look where the state of each query lies."""

    def plan_rebalancing(self, strategy: Strategy | None = None) -> Planned:
        """Plan to spread the state evenly."""

    def plan_draining(self, executor_ids: Sequence[str], strategy: Strategy | None = None) -> Planned:
        """Plan to take all state off these executors."""

    def begin(self, plans: Sequence[Plan]) -> None:
        """Begin to carry out these plans."""

    def ended(self) -> MovesEnded | None:
        """Tell how the moves ended; None while state moves."""

    def standing(self) -> dict[str, Any] | None:
        """Describe how the last migration stands, as plain data; None before the first."""
