"""Places for bins: few bytes moved for a wanted balance, and the way off workers that leave.

Operators are placed each for itself, since their stages run one after the other. For each there is a list of
placements worth considering, all of them where they are few and what the search found where they are many;
then one of each list is chosen so that together they are even, and after that cheap.

Uneven state is planned for anew after a rest, and only if something has changed that matters: a hot bin may
leave an executor fuller than the others wherever it lies, and to search again in every cycle would find the
same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.moves import Bin
from penstock.errors import BadInput
from penstock.migrate.bins import BinState, StateView
from penstock.migrate.packing import JudgedPlacement, Packing, keep_best
from penstock.migrate.search import WORK, find_cheapest, find_evenest, part_queues

TIE = 0.01
"""The weight of the number of moves and of ways between hosts together, in parts of the smallest bin: they
decide only between plans of equal bytes."""
TOLERANCE = 0.02
"""Of an imbalance: less is within the noise of loads."""
NEAR_ENOUGH = 0.005
"""Of an imbalance: how well the least one is known before the search for it ends."""
EVEN_ENOUGH = 0.1
"""By how much the fullest worker's load per slot may exceed the mean, unless a setting says otherwise."""
ALL_UP_TO = 3000
"""Placements of an operator up to which all are looked at, in about 0.1 s; beyond, they are searched."""
LIMITS = 4
"""Limits at which each of several operators is searched, to share what imbalance there may be among them."""
REST_SECONDS = 300.0
"""After a migration state stays where it is for so long, unless executors came or went."""
LEAST_GAIN = 0.1
"""A rebalancing that brings less is not worth disturbing a batch."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A bin that should go from one worker to another, at a time still to be planned."""

    bin: Bin
    source: str
    target: str


def balance(
    view: StateView, target: float = EVEN_ENOUGH, all_up_to: int = ALL_UP_TO
) -> tuple[Assignment, ...]:
    """Find moves of few bytes that reach the target imbalance or come near it; it never gets worse."""
    problem = _Problem.of(view, frozenset())
    if problem is None or len(view.workers) < 2:
        return ()
    now = [packing.judge(packing.rest()) for packing in problem.packings]
    if problem.is_good(now, target):
        return ()
    most = sum(one.fullest for one in now)
    return problem.list_assignments(_Choosing(problem, target, most, all_up_to).choose())


def drain(view: StateView, leaving: Collection[str], all_up_to: int = ALL_UP_TO) -> tuple[Assignment, ...]:
    """Find the moves of all bins off the workers that leave, so that those who stay are as even as can be."""
    here = {worker.worker for worker in view.workers}
    unknown = sorted(set(leaving) - here)
    if unknown:
        raise BadInput(f"there is no executor {unknown[0]}; there are: {', '.join(sorted(here))}")
    if not here - set(leaving):
        raise BadInput("an executor must stay: the bins of those that leave have nowhere to go")
    problem = _Problem.of(view, frozenset(leaving))
    if problem is None or not any(state.worker in leaving for state in problem.states):
        return ()
    return problem.list_assignments(_Choosing(problem, 0.0, math.inf, all_up_to).choose())


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """The bins that somebody hosts, operator by operator, and the workers that stay."""

    states: tuple[BinState, ...]
    workers: tuple[str, ...]
    packings: tuple[Packing, ...]

    @staticmethod
    def of(view: StateView, leaving: frozenset[str]) -> _Problem | None:
        """Return the problem of a view, if it has bins; where workers leave, only their bins move."""
        alive = {worker.worker for worker in view.workers}
        states = sorted((one for one in view.bins if one.worker in alive), key=lambda one: one.bin)
        if not states:
            return None
        workers = [worker for worker in view.workers if worker.worker not in leaving]
        slots = np.array([max(1, worker.slots) for worker in workers], dtype=np.float64)
        costs = np.array(_price_moves(view, states, leaving), dtype=np.float64)
        loads = view.loads()
        operators = np.array([state.bin.operator for state in states])
        heavy = np.array([loads[state.bin] for state in states], dtype=np.float64)
        packings = [
            Packing(heavy[operators == one], slots, costs[operators == one]) for one in np.unique(operators)
        ]
        return _Problem(tuple(states), tuple(one.worker for one in workers), tuple(packings))

    def even(self) -> float:
        """Return the load per slot of all operators if bins could be divided."""
        return sum(packing.even() for packing in self.packings)

    def is_good(self, now: Sequence[JudgedPlacement], target: float) -> bool:
        """Tell without a search that no placement is better by more than noise."""
        even = self.even()
        fullest = sum(packing.least_fullest() for packing in self.packings) + TOLERANCE * even
        longest = sum(packing.least_longest() for packing in self.packings)
        is_even = sum(one.fullest for one in now) <= max((1 + target) * even, fullest)
        return is_even and sum(one.longest for one in now) <= (1 + target) * longest

    def list_assignments(self, choice: JudgedPlacement) -> tuple[Assignment, ...]:
        """List the bins that are elsewhere in a placement of all operators."""
        wanted = [self.workers[place] for place in choice.places.tolist()]
        return tuple(
            Assignment(state.bin, state.worker, worker)
            for state, worker in zip(self.states, wanted, strict=True)
            if state.worker is not None and state.worker != worker
        )


def _price_moves(view: StateView, states: Sequence[BinState], leaving: frozenset[str]) -> list[list[float]]:
    """Return the cost of each bin at each worker that stays, in bytes of the smallest bin."""
    host = {worker.worker: worker.host for worker in view.workers}
    unit = min((state.bytes for state in states if state.bytes > 0), default=1)

    def price(state: BinState, worker: str) -> float:
        if state.worker == worker:
            return 0.0
        if leaving and state.worker not in leaving:
            return math.inf
        afar = 1.0 if host[state.worker or ""] == host[worker] else 2.0
        return state.bytes / unit + TIE * afar / (2 * len(states))

    staying = [worker.worker for worker in view.workers if worker.worker not in leaving]
    return [[price(state, worker) for worker in staying] for state in states]


@dataclass(frozen=True, slots=True, eq=False)
class _Choosing:
    """The choice of a placement for each operator; `most` is the most that their fullest loads may sum to."""

    problem: _Problem
    target: float
    most: float
    all_up_to: int

    def choose(self) -> JudgedPlacement:
        """Choose the cheapest of those that are even enough, and of these take no longer than they must."""
        packings, even = self.problem.packings, self.problem.even()
        known = [self._begin(packing) for packing in packings]
        least = [min(choice.fullest for choice in choices) for choices in known]
        wanted = (1 + self.target) * even
        bound = min(self.most, max(wanted, sum(least) + TOLERANCE * even))
        total = [JudgedPlacement(np.zeros(0, dtype=np.intp), 0.0, 0.0, 0.0)]
        for packing, choices, own in zip(packings, known, least, strict=True):
            top = bound - (sum(least) - own)
            many = packing.count_placements() > self.all_up_to
            more = self._search(packing, choices, own, top) if many else []
            fitting = keep_best(one for one in choices + more if one.fullest <= top + packing.hair())
            total = keep_best(_join(first, second) for first in total for second in fitting)
        hair = sum(packing.hair() for packing in packings)
        within = [one for one in total if one.fullest <= bound + hair]
        longest = (1 + max(self.target, TOLERANCE)) * min(one.longest for one in within)
        return min((one for one in within if one.longest <= longest), key=lambda one: one.cost)

    def _begin(self, packing: Packing) -> list[JudgedPlacement]:
        """Return all placements of an operator, or where they are many the cheapest and an even one."""
        if packing.count_placements() <= self.all_up_to:
            return keep_best(packing.judge(places) for places in packing.all_placements())
        even = find_evenest(packing, NEAR_ENOUGH * packing.even(), self._work())
        return [packing.judge(packing.rest()), packing.judge(even)]

    def _search(
        self, packing: Packing, known: list[JudgedPlacement], least: float, top: float
    ) -> list[JudgedPlacement]:
        """Search an operator's placements between its least fullest load and the most that there may be."""
        alone = len(self.problem.packings) == 1
        enough, work = (1 + max(self.target, TOLERANCE)) * packing.least_longest(), self._work() / LIMITS
        found: list[JudgedPlacement] = []
        for limit in np.linspace(max(least, min(top, known[0].fullest)), least, LIMITS).tolist():
            places = find_cheapest(packing, limit, [one.places for one in known], work)
            parted = part_queues(packing, places, max(limit, packing.fullest(places)), enough, work)
            found += [packing.judge(places), packing.judge(parted)]
            if alone and found[-2].fullest <= limit + packing.hair() and found[-2].longest <= enough:
                break
        return found

    def _work(self) -> float:
        return WORK / len(self.problem.packings)


def _join(first: JudgedPlacement, second: JudgedPlacement) -> JudgedPlacement:
    return JudgedPlacement(
        np.concatenate([first.places, second.places]),
        first.fullest + second.fullest,
        first.longest + second.longest,
        first.cost + second.cost,
    )


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
