"""When uneven state is planned for anew: after a rest, and only if something has changed that matters.

A hot bin may leave an executor fuller than the others wherever it lies. To search for a better placement
again in every cycle would find the same: none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.dataflow.moves import Bin
from penstock.migrate.bins import StateView
from penstock.migrate.planner import Assignment

REST_SECONDS = 300.0
"""After a migration state stays where it is for so long, unless executors came or went."""
LEAST_GAIN = 0.1
"""A rebalancing that brings less is not worth disturbing a batch."""


class UnevenState:
    """The queries whose state is worth planning for, and what was found for which no better place exists."""

    def __init__(self, balance: Callable[[StateView], Sequence[Assignment]]) -> None:
        self._balance = balance
        self._until, self._executors = float("-inf"), frozenset[str]()
        self._settled: dict[str, StateView] = {}

    def rests(self, now: float, executors: frozenset[str]) -> bool:
        """Tell whether state was moved a short while ago among the same executors."""
        return now < self._until and executors == self._executors

    def find(self, now: float, executors: frozenset[str], views: Sequence[StateView]) -> list[StateView]:
        """Return the views that have a better placement; a rest begins if there are any."""
        uneven = [view for view in views if self._improves(view)]
        self._until, self._executors = (now + REST_SECONDS if uneven else now), executors
        return uneven

    def settle(self, views: Sequence[StateView]) -> None:
        """Remember views for which nothing is worth a move."""
        self._settled |= {view.query: view for view in views}

    def _improves(self, view: StateView) -> bool:
        settled = self._settled.get(view.query)
        if settled is not None and not has_changed(settled, view):
            return False
        if self._balance(view):
            return True
        self.settle([view])
        return False


def has_changed(before: StateView, now: StateView) -> bool:
    """Tell whether executors, places, loads or sizes differ so much that another placement may be worth it.

    Loads and sizes count in parts of what a slot has on average: what grows everywhere alike moves nothing.
    """
    if _list_slots(before) != _list_slots(now) or before.placement() != now.placement():
        return True
    if {state.bin for state in before.bins} != {state.bin for state in now.bins}:
        return True
    if abs(now.imbalance() - before.imbalance()) >= LEAST_GAIN:
        return True
    slots = sum(_list_slots(now).values())
    sizes = [{state.bin: float(state.bytes) for state in view.bins} for view in (before, now)]
    return _differ(before.loads(), now.loads(), slots) or _differ(sizes[0], sizes[1], slots)


def _list_slots(view: StateView) -> dict[str, int]:
    return {worker.worker: max(1, worker.slots) for worker in view.workers}


def _differ(before: Mapping[Bin, float], now: Mapping[Bin, float], slots: int) -> bool:
    """Tell whether any bin has another part of the whole, by as much as is worth a move."""
    was, is_ = sum(before.values()), sum(now.values())
    if was <= 0 or is_ <= 0:
        return (was > 0) != (is_ > 0)
    return any(abs(now[bin_] / is_ - before[bin_] / was) * slots >= LEAST_GAIN for bin_ in now)
