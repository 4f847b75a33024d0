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


def counts(executors: Iterable[Mapping[str, Any]], start: float, end: float) -> tuple[int, int]:
    """Of those lost in [start, end): how many ran out of heap, and how many were killed for memory."""
    heap = killed = 0
    for executor in executors:
        removed = executor.get("removeTime")
        if removed is None or not start <= float(removed) / 1000 < end:
            continue
        reason = str(executor.get("removeReason") or "")
        if _OUT_OF_HEAP.search(reason):
            heap += 1
        elif _KILLED.search(reason):
            killed += 1
    return heap, killed
