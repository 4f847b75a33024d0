"""The manager's verdicts, and how often each was given in a row."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from penstock.decide.policy import Action, Resize


@dataclass(frozen=True, slots=True)
class Accepted:
    """Perform this action; `notes` say what the guardrails changed in what was proposed.

    A `rollback` undoes an earlier action after which things got worse.
    """

    kind: ClassVar[str] = "accepted"
    action: Action | Resize
    notes: tuple[str, ...] = ()
    rollback: bool = False

    @property
    def reason(self) -> str:
        """The action's own reason, followed by the notes."""
        return "; ".join((self.action.reason, *self.notes))


@dataclass(frozen=True, slots=True)
class Rejected:
    """A change was proposed, and this guardrail forbids it."""

    kind: ClassVar[str] = "rejected"
    guardrail: str
    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """It is too early to judge; `until` is when it will not be, where that is known."""

    kind: ClassVar[str] = "waiting"
    reason: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The application has the size that it should have."""

    kind: ClassVar[str] = "nothing-to-do"
    reason: str


Verdict: TypeAlias = Accepted | Rejected | Waiting | NothingToDo


def strip_figures(text: str) -> str:
    """Replace the figures in a text, which change while it says the same."""
    return re.sub(r"\d+(?:[.,]\d+)*", "#", text)


def verdict_key(verdict: Verdict) -> str:
    """Return a text that is equal for verdicts that say the same: figures may differ, sizes may not."""
    sizes = dict(verdict.action.planned) if isinstance(verdict, Accepted) else None
    guardrail = verdict.guardrail if isinstance(verdict, Rejected) else None
    return f"{verdict.kind} | {guardrail} | {strip_figures(verdict.reason)} | {sizes}"


@dataclass(frozen=True, slots=True)
class CountedVerdict:
    """A verdict in its latest words, given `count` times in a row from `first_at` to `last_at`."""

    first_at: float
    last_at: float
    verdict: Verdict
    count: int = 1

    def plain(self) -> dict[str, Any]:
        """Return this as plain data, with the size and the expected effect of an accepted action."""
        action = self.verdict.action if isinstance(self.verdict, Accepted) else None
        return {
            "at": self.last_at,
            "kind": self.verdict.kind,
            "reason": self.verdict.reason,
            "parallelism": dict(action.planned) if action else None,
            "count": self.count,
            "expected": action.expected.summary if action else "",
        }


class VerdictLog:
    """The latest verdicts, oldest first; one that says the same again is counted."""

    def __init__(self, length: int | None = None) -> None:
        self._verdicts: deque[CountedVerdict] = deque(maxlen=length)
        self._open_key: str | None = None

    def __iter__(self) -> Iterator[CountedVerdict]:
        return iter(self._verdicts)

    def __len__(self) -> int:
        return len(self._verdicts)

    def add(self, now: float, verdict: Verdict) -> None:
        """Add a verdict, or count the last one again."""
        key = verdict_key(verdict)
        if self._verdicts and key == self._open_key:
            last = self._verdicts.pop()
            self._verdicts.append(CountedVerdict(last.first_at, now, verdict, last.count + 1))
        else:
            self._verdicts.append(CountedVerdict(now, now, verdict))
        self._open_key = key

    def close_last(self) -> None:
        """Start anew with the next verdict: something was done for the last one."""
        self._open_key = None
