"""Executors that were lost for want of memory, remembered for a while (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.dataflow.window import MemoryLoss
from penstock.observe.executors.processes import LATE_SECONDS, Losses

RECENT_SECONDS = 180.0
"""A loss is told for so long: an executor is soon replaced, and then lives until it dies again."""


class RecentLosses:
    """Remembers recent losses; asks for the list of all lost executors only after some have gone.

    An executor that died before the first look tells nothing of what is looked at.
    """

    def __init__(self) -> None:
        self._losses = Losses()
        self._known: set[str] = set()
        self._ask_until = self._began = float("-inf")
        self._recent: tuple[MemoryLoss, ...] = ()

    def should_ask(self, executors: Iterable[str], now: float) -> bool:
        """Whether executors have gone of late; Spark may list one late that it has lost."""
        if self._began == float("-inf"):
            self._began = now
        before, self._known = self._known, set(executors)
        if before - self._known:
            self._ask_until = now + LATE_SECONDS
        return now <= self._ask_until

    def add(self, lost: Iterable[Mapping[str, Any]], now: float) -> None:
        """Take in the executors that Spark lists as lost."""
        new = self._losses.list_new(lost, now - RECENT_SECONDS, now + LATE_SECONDS)
        self._recent += tuple(loss for loss in new if loss.at >= self._began)

    def list_recent(self, now: float) -> tuple[MemoryLoss, ...]:
        """List the losses of the last minutes, oldest first."""
        self._recent = tuple(loss for loss in self._recent if now - RECENT_SECONDS <= loss.at)
        return self._recent
