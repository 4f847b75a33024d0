"""The journal as others see it: a record of what was seen, decided and done, and memories.

Whoever writes or reads a journal takes one of these ports; the journal itself, a simulated run's record and
the tests' fakes have them. All methods raise JournalUnavailable, and nothing else of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.outcome import Outcome
from penstock.decide.policy import Action, Proposal, Resize
from penstock.decide.verdict import Verdict
from penstock.journal.records import ActionRecord, Plain

Sizes = Mapping[str, int] | Mapping[str, str]
"""Units with their counts, or settings with their values."""


class Record(Protocol):
    """The record of what was seen, decided and done."""

    def observed(self, now: float, window: ApplicationWindow) -> None:
        """Keep a window's figures."""

    def decided(
        self, now: float, application: str, answer: Proposal | NotReady, verdict: Verdict, policy: str = ""
    ) -> int:
        """Keep an answer and its verdict; return the decision's number."""

    def intend(
        self, now: float, application: str, decision_id: int, action: Action | Resize, before: Sizes
    ) -> int:
        """Write down, durably, what is about to be done; return the action's number."""

    def ended(self, now: float, action_id: int, outcome: Outcome) -> None:
        """Write down what became of an action; NotFound if there is no such action."""

    def effect(self, now: float, action_id: int, figures: Mapping[str, float]) -> None:
        """Write down what it brought; NotFound if there is no such action."""

    def unfinished(self, application: str) -> Sequence[ActionRecord]:
        """Return the actions without an outcome, oldest first."""

    def actions(self, application: str | None = None, limit: int | None = None) -> Sequence[ActionRecord]:
        """Return the latest actions, oldest first."""


class Memories(Protocol):
    """Memories under an owner, a kind and a key, which outlive the process that learned them."""

    def remember(self, now: float, owner: str, kind: str, key: str, body: Plain) -> None:
        """Write over what is known by this key."""

    def revise(
        self, now: float, owner: str, kind: str, key: str, change: Callable[[Plain | None], Plain]
    ) -> Plain:
        """Change what is known by this key, with nobody in between; return what is known then."""

    def recall(self, owner: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Return key → what is known."""

    def recall_all(self, kind: str) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
        """Return owner → key → what is known."""


class RecordAndMemories(Record, Memories, Protocol):
    """The whole journal, for those who see actions through and have to know of earlier ones."""


_PASSWORD = re.compile(r"(://[^:/]*:)[\s\S]*(?=@)|([?&](?:ssl)?password=)[^&]*")
"""A password may hold any character, so all up to the last `@` counts as one."""


def hide_password(address: str) -> str:
    """Make the password in an address, before the host or among the parameters, unreadable."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}***", address)
