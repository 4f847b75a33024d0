"""The ports: where the loop meets the world, real or simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.outcome import Outcome
from penstock.decide.policy import Action, MoveState, Proposal, Scale
from penstock.decide.verdict import Verdict
from penstock.follow_up import Endings
from penstock.journal.records import ActionRecord


class Source(Protocol):
    """Where windows come from; raises PenstockError and nothing else on purpose."""

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        """What happened since the last call."""


class Actuator(Protocol):
    """What changes the application; one action at a time, a new one drops what is left of an older one."""

    def begin(self, now: float, action: Action) -> None:
        """Start an action; returns at once."""

    def poll(self, now: float) -> Outcome | None:
        """Advance the action under way; None while it has not ended.

        After SparkUnavailable it is called again, and takes up where it stood.
        """

    def abandon(self) -> None:
        """Give up the action under way and leave nothing half-done that would be of no use."""

    def held(self) -> Mapping[str, int]:
        """What Spark reports to be there now."""


class Mover(Protocol):
    """What sees that state lies unevenly; raises PenstockError and nothing else on purpose."""

    def propose(self, now: float, window: ApplicationWindow) -> MoveState | None:
        """The moves that would spread it, if they are worth their while."""

    def stop(self, reason: str) -> bool:
        """Let what moves come to a stop where it is consistent; whether anything moved."""


class Manager(Protocol):
    """What judges the policy's answers."""

    def judge(self, now: float, window: ApplicationWindow, answer: Proposal | NotReady) -> Verdict:
        """Say what becomes of an answer."""

    def action_started(self, now: float, action: Scale) -> None:
        """An action is under way."""

    def action_ended(self, now: float, action: Scale, outcome: Outcome) -> None:
        """It is no more."""

    def restore(self, last_action_at: float | None) -> None:
        """Take up after a restart."""


class Record(Endings, Protocol):
    """The journal, as far as the loop writes and reads it; raises JournalUnavailable."""

    def observed(self, now: float, window: ApplicationWindow) -> None:
        """Keep a window's figures."""

    def decided(
        self, now: float, application: str, answer: Proposal | NotReady, verdict: Verdict, policy: str = ""
    ) -> int:
        """Keep an answer and its verdict."""

    def intend(
        self, now: float, application: str, decision_id: int, action: Action, before: Mapping[str, int]
    ) -> int:
        """Write down what is about to be done, durably."""

    def unfinished(self, application: str) -> Sequence[ActionRecord]:
        """Actions without an outcome."""

    def actions(self, application: str | None = None, limit: int | None = None) -> Sequence[ActionRecord]:
        """The latest actions, oldest first."""
