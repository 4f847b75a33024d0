"""The normal answer "not yet": why, what is awaited, until when."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NotReady:
    """No decision can be taken yet; nothing is to be changed."""

    reason: str
    awaiting: str = ""
    until: float | None = None

    def __str__(self) -> str:
        return f"{self.reason}; awaiting {self.awaiting}" if self.awaiting else self.reason
