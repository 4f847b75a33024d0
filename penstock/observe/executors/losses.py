"""Executors that were lost for want of memory: counted once each, and remembered for a while (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.dataflow.window import MemoryLoss

_OUT_OF_HEAP = re.compile(
    r"OutOfMemoryError|exit(ed with)? (code|status):? ?52\b|exitCode:? ?52\b", re.IGNORECASE
)
"""52 is the code with which an executor ends itself after an OutOfMemoryError."""
_KILLED = re.compile(
    r"exceed\w* (the )?(physical|virtual|its)? ?memory|memory limits?|OOMKilled|\bOOM\b"
    r"|exit(ed with)? (code|status):? ?137\b|exitCode:? ?137\b",
    re.IGNORECASE,
)
"""137 is the code of a process that was killed from outside, on Linux mostly for its memory."""
LATE_SECONDS = 60.0
"""By so much Spark may be late to list an executor that it has lost."""
RECENT_SECONDS = 180.0
"""A loss is told for so long: an executor is soon replaced, and then lives until it dies again."""


class Losses:
    """Counts each lost executor once, in the first window that hears of it, and not in the one it falls into.

    Spark's listeners are behind what has happened, most of all when a driver has much to do, and that an
    executor ran out of memory is told once.
    """

    def __init__(self) -> None:
        self._counted: set[str] = set()

    def counts(self, executors: Iterable[Mapping[str, Any]], start: float, end: float) -> tuple[int, int]:
        """In the window [start, end): how many ran out of heap, and how many were killed for memory."""
        found = self.list_new(executors, start, end)
        heap = sum(loss.out_of_heap for loss in found)
        return heap, len(found) - heap

    def list_new(
        self, executors: Iterable[Mapping[str, Any]], start: float, end: float
    ) -> tuple[MemoryLoss, ...]:
        """List those that were lost for want of memory and are heard of in the window [start, end)."""
        new = [executor for executor in executors if self._is_new(executor, start, end)]
        return tuple(loss for executor in new if (loss := _read_loss(executor)) is not None)

    def _is_new(self, executor: Mapping[str, Any], start: float, end: float) -> bool:
        removed, name = executor.get("removeTime"), str(executor.get("id"))
        if removed is None or name in self._counted:
            return False
        is_new = start - LATE_SECONDS <= float(removed) / 1000 < end
        if is_new:
            self._counted.add(name)
        return is_new


def _read_loss(executor: Mapping[str, Any]) -> MemoryLoss | None:
    reason = str(executor.get("removeReason") or "")
    out_of_heap = bool(_OUT_OF_HEAP.search(reason))
    if not (out_of_heap or _KILLED.search(reason)):
        return None
    host = str(executor.get("hostPort") or "").rsplit(":", 1)[0]
    return MemoryLoss(str(executor["id"]), host, float(executor["removeTime"]) / 1000, out_of_heap)


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
