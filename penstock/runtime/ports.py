"""The ports: where the loop meets the world, real or simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.manager.restarts import Restarter
from penstock.decide.outcome import Outcome
from penstock.decide.policy import Action, MoveState, Policy, Proposal, Scale
from penstock.decide.verdict import Accepted, Rejected, Verdict
from penstock.journal.ports import Record
from penstock.migrate.mover import MoveProposer


class Source(Protocol):
    """The source of windows; raises PenstockError and nothing else on purpose."""

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        """Return what happened since the last call."""


class Actuator(Protocol):
    """The hand that changes the application, one action at a time; a new one drops the rest of an older."""

    def begin(self, now: float, action: Action) -> None:
        """Start an action; returns at once."""

    def poll(self, now: float) -> Outcome | None:
        """Advance the action under way; None while it has not ended.

        After SparkUnavailable it is called again, and takes up where it stood.
        """

    def abandon(self) -> None:
        """Give up the action under way and leave nothing half-done that would be of no use."""

    def held(self) -> Mapping[str, int]:
        """Return what Spark reports to be there now."""


@runtime_checkable
class Withdrawer(Protocol):
    """An actuator whose order for executors can be withdrawn while they have not come."""

    def withdraw(self, why: str) -> bool:
        """Order no more than have come, which ends the action; False where none are awaited."""


class Manager(Protocol):
    """The judge of the policy's answers."""

    def judge(self, now: float, window: ApplicationWindow, answer: Proposal | NotReady) -> Verdict:
        """Say what becomes of an answer."""

    def judge_fallback(self, now: float, window: ApplicationWindow, fallback: Scale) -> Verdict:
        """Say what becomes of the size for the time without metrics."""

    def object_to_moves(self) -> Rejected | None:
        """Say which guardrail forbids all moves of state now."""

    def judge_move(self, window: ApplicationWindow, move: MoveState) -> Accepted | Rejected:
        """Say what becomes of a move that the mover proposes."""

    def action_started(self, now: float, action: Scale) -> None:
        """Note that an action is under way."""

    def action_ended(self, now: float, action: Scale, outcome: Outcome) -> None:
        """Note that it has ended."""

    def restore(self, last_action_at: float | None) -> None:
        """Take up after a restart."""


@dataclass(frozen=True, slots=True)
class Ports:
    """All that a loop works with; without an actuator it only recommends."""

    source: Source
    policy: Policy
    manager: Manager
    record: Record
    actuator: Actuator | None = None
    mover: MoveProposer | None = None
    restarter: Restarter | None = None
