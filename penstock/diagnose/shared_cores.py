"""Cores that more tasks want than there are: each gets an equal part, so all of them take longer."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Item = TypeVar("Item")


class SharedCores(Generic[Item]):
    """Processor sharing in virtual time: an item ends when the virtual clock has passed its demand.

    The virtual clock runs as fast as the real one while there is a core for everyone, and slower by the ratio
    of cores to items otherwise, so that a change in their number moves no item in the queue.
    """

    def __init__(self, cores: float) -> None:
        self._cores = cores
        self._virtual = self._now = 0.0
        self._queue: list[tuple[float, int, Item]] = []
        self._number = 0

    def enter(self, now: float, demand: float, item: Item) -> None:
        """From now on the item wants a core for so many seconds."""
        self._advance(now)
        self._number += 1
        heapq.heappush(self._queue, (self._virtual + demand, self._number, item))

    def next_end(self) -> float:
        """When the first item ends if none comes in between; never without an item."""
        if not self._queue:
            return float("inf")
        return self._now + max(0.0, self._queue[0][0] - self._virtual) / self._rate()

    def leave(self, now: float) -> Item:
        """The first item to end, at the time that `next_end` told."""
        self._advance(now)
        demand, _, item = heapq.heappop(self._queue)
        self._virtual = max(self._virtual, demand)
        return item

    def _rate(self) -> float:
        return min(1.0, self._cores / len(self._queue)) if self._queue else 1.0

    def _advance(self, now: float) -> None:
        self._virtual += (now - self._now) * self._rate()
        self._now = now
