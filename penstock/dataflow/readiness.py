"""The normal answer "not yet", with its reason and what is awaited."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NotReady:
    """No decision can be taken yet, so nothing changes; `until` is when to ask again, if that is known."""

    reason: str
    awaiting: str = ""
    until: float | None = None

    def __str__(self) -> str:
        return f"{self.reason}; awaiting {self.awaiting}" if self.awaiting else self.reason
