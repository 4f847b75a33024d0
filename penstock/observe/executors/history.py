"""Which executors were there when, so that a batch can be judged by the slots it had (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_FORGOTTEN_SECONDS = 3600.0


class ExecutorHistory:
    """Remembers from when to when each executor was there, and its slots."""

    def __init__(self) -> None:
        self._spans: dict[str, tuple[float, float, int]] = {}

    def note(self, executors: Sequence[Mapping[str, Any]], now: float) -> None:
        """Take in the executors that Spark lists now."""
        active = {str(executor["id"]) for executor in executors}
        for name, (added, removed, slots) in list(self._spans.items()):
            if name not in active and removed == math.inf:
                self._spans[name] = (added, now, slots)
            elif removed < now - _FORGOTTEN_SECONDS:
                del self._spans[name]
        for executor in executors:
            added = executor["addTime"] / 1000
            self._spans.setdefault(str(executor["id"]), (added, math.inf, int(executor["maxTasks"])))

    @property
    def cores(self) -> Mapping[str, int]:
        """The slots of every executor that is remembered."""
        return {name: slots for name, (_, _, slots) in self._spans.items()}

    def slots_at(self, moment: float) -> int:
        """Return the slots of all executors that were there at this moment."""
        return sum(slots for added, removed, slots in self._spans.values() if added <= moment < removed)

    def new_slots_at(self, moment: float, worked_before: float) -> int:
        """Return those slots of a moment whose executors have not worked on a batch that began before."""
        return self.slots_at(moment) - sum(
            slots
            for added, removed, slots in self._spans.values()
            if added <= worked_before < math.inf and added <= moment < removed
        )

    def is_settled(self, start: float, end: float, worked_before: float) -> bool:
        """Whether a batch had the same executors throughout, all of which had worked on one before.

        A new executor's first tasks start Python workers and compile code: seen to take seconds each.
        """
        return worked_before < start and not any(
            worked_before < added <= end or start < removed <= end
            for added, removed, _ in self._spans.values()
        )
