"""What the scaling manager says to a policy's answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.decide.policy import Action, Resize


@dataclass(frozen=True, slots=True)
class Accepted:
    """Perform this action; `notes` say what the guardrails changed in what was proposed."""

    action: Action | Resize
    notes: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The action's own reason, followed by the notes."""
        return "; ".join((self.action.reason, *self.notes))


@dataclass(frozen=True, slots=True)
class Rejected:
    """A change was proposed, and this guardrail forbids it."""

    guardrail: str
    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """It is too early to judge; `until` is when it will not be, where that is known."""

    reason: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The application has the size that it should have."""

    reason: str


Verdict: TypeAlias = Accepted | Rejected | Waiting | NothingToDo
