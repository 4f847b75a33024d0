"""Why executors were lost: for want of heap, for want of memory, or for another reason (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

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


class Losses:
    """Counts each lost executor once, in the first window that hears of it, and not in the one it falls into.

    Spark's listeners are behind what has happened, most of all when a driver has much to do, and that an
    executor ran out of memory is told once.
    """

    def __init__(self) -> None:
        self._counted: set[str] = set()

    def counts(self, executors: Iterable[Mapping[str, Any]], start: float, end: float) -> tuple[int, int]:
        """In the window [start, end): how many ran out of heap, and how many were killed for memory."""
        reasons = [_reason(executor) for executor in executors if self._is_new(executor, start, end)]
        heap = [bool(_OUT_OF_HEAP.search(reason)) for reason in reasons]
        killed = [bool(_KILLED.search(reason)) for reason in reasons]
        return sum(heap), sum(one and not other for one, other in zip(killed, heap, strict=True))

    def _is_new(self, executor: Mapping[str, Any], start: float, end: float) -> bool:
        removed, name = executor.get("removeTime"), str(executor.get("id"))
        if removed is None or name in self._counted:
            return False
        is_new = start - LATE_SECONDS <= float(removed) / 1000 < end
        if is_new:
            self._counted.add(name)
        return is_new


def _reason(executor: Mapping[str, Any]) -> str:
    return str(executor.get("removeReason") or "")
