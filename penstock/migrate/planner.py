"""Places for bins: the least bytes moved for a wanted balance, and the way off workers that leave.

Up to a size the program of `packing.py` finds the least; beyond, bins go from the fullest worker to the
emptiest, one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from penstock.dataflow.moves import Bin
from penstock.errors import BadInput
from penstock.migrate.bins import BinState, StateView, measure_imbalance
from penstock.migrate.packing import Packing, find_least_cost, find_least_imbalance

TIE = 0.01
"""The weight of the number of moves and of ways between hosts together, in parts of the smallest bin: they
decide only between plans of equal bytes."""
HOT_FACTOR = 3.0
"""A bin is hot when its load exceeds this multiple of the median of its operator."""
TOLERANCE = 0.02
"""Of an imbalance: less is within the noise of loads."""
EVEN_ENOUGH = 0.1
"""By how much the fullest worker's load per slot may exceed the mean, unless a setting says otherwise."""
EXACT_UP_TO = 8192
"""Pairs of bin and worker up to which the bytes moved are proven least; beyond, the search is greedy."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A bin that should go from one worker to another, at a time still to be planned."""

    bin: Bin
    source: str
    target: str


def balance(
    view: StateView, target: float = EVEN_ENOUGH, exact_up_to: int = EXACT_UP_TO
) -> tuple[Assignment, ...]:
    """Find the moves of least bytes that reach the target imbalance; it never gets worse."""
    alive = {worker.worker for worker in view.workers}
    states = tuple(state for state in view.bins if state.worker in alive)
    if not states or len(alive) < 2:
        return ()
    packing, before = _make_packing(view, states), view.imbalance()
    unspread = not packing.is_spread(view.placement())
    if before <= target and not unspread:
        return ()
    if packing.size() > exact_up_to:
        found = smooth(view, target)
        return _list_assignments(states, found) if _is_worth(view, found, before) else ()
    for spread in (True, False):
        placement = _rebalance(view, packing, before, target, spread, must=spread and unspread)
        if placement is not None:
            return _list_assignments(states, placement)
    return ()


def drain(view: StateView, leaving: Collection[str]) -> tuple[Assignment, ...]:
    """Find the moves of all bins off the workers that leave, so that those who stay are as even as can be."""
    here = {worker.worker for worker in view.workers}
    unknown = sorted(set(leaving) - here)
    if unknown:
        raise BadInput(f"there is no executor {unknown[0]}; there are: {', '.join(sorted(here))}")
    if not here - set(leaving):
        raise BadInput("an executor must stay: the bins of those that leave have nowhere to go")
    states = tuple(state for state in view.bins if state.worker in here)
    if not any(state.worker in leaving for state in states):
        return ()
    packing = _make_packing(view, states, frozenset(leaving))
    return _list_assignments(states, _place_leaving(view, packing))


def find_hot_bins(view: StateView) -> frozenset[Bin]:
    """Find bins whose load is far above the median of their operator: the stragglers that skew makes."""
    loads = view.loads()
    by_operator: dict[int, list[float]] = {}
    for bin_, load in loads.items():
        by_operator.setdefault(bin_.operator, []).append(load)
    middle = {operator: median(of_operator) for operator, of_operator in by_operator.items()}
    return frozenset(bin_ for bin_, load in loads.items() if load > HOT_FACTOR * middle[bin_.operator])


def smooth(view: StateView, target: float, staying: Collection[str] | None = None) -> dict[Bin, str]:
    """Find a placement within the target imbalance where single moves lead there; it is never worse.

    Bins of workers that do not stay are placed first, the heaviest at the emptiest; nothing else moves then.
    """
    loads = view.loads()
    slots = {
        one.worker: max(1, one.slots) for one in view.workers if staying is None or one.worker in staying
    }
    operators = {state.bin.operator: _OperatorBins(slots) for state in view.bins}
    homeless: list[Bin] = []
    alive = {worker.worker for worker in view.workers}
    for state in view.bins:
        if state.worker in slots:
            operators[state.bin.operator].put(state.bin, state.worker, loads[state.bin])
        elif state.worker in alive:
            homeless.append(state.bin)
    for bin_ in sorted(homeless, key=lambda one: (-loads[one], one)):
        operators[bin_.operator].put(bin_, operators[bin_.operator].emptiest(), loads[bin_])
    if not homeless:
        sizes = {state.bin: max(1, state.bytes) for state in view.bins}
        for operator in operators.values():
            _level(operator, target, loads, sizes)
    return {bin_: worker for one in operators.values() for worker, bins in one.at.items() for bin_ in bins}


def _make_packing(
    view: StateView, states: tuple[BinState, ...], leaving: frozenset[str] = frozenset()
) -> Packing:
    """Return the bins and who may have them; with workers that leave, only their bins may move."""
    workers = tuple(worker for worker in view.workers if worker.worker not in leaving)
    host = {worker.worker: worker.host for worker in view.workers}
    unit = min((state.bytes for state in states if state.bytes > 0), default=1)
    loads, hot = view.loads(), find_hot_bins(view)

    def cost(state: BinState, worker: str) -> float:
        if state.worker == worker:
            return 0.0
        afar = 1.0 if host[state.worker or ""] == host[worker] else 2.0
        return state.bytes / unit + TIE * afar / (2 * len(states))

    return Packing(
        bins=tuple(state.bin for state in states),
        workers=workers,
        loads=np.array([loads[state.bin] for state in states], dtype=np.float64),
        costs=np.array([[cost(state, one.worker) for one in workers] for state in states], dtype=np.float64),
        allowed=np.array(
            [
                [not leaving or state.worker in leaving or state.worker == one.worker for one in workers]
                for state in states
            ],
            dtype=np.bool_,
        ),
        hot=np.array([state.bin in hot for state in states], dtype=np.bool_),
    )


def _rebalance(
    view: StateView, packing: Packing, before: float, target: float, spread: bool, must: bool
) -> Mapping[Bin, str] | None:
    """Find a placement no worse than before; None where no placement is worth a move."""
    direct = find_least_cost(packing, min(before, target), spread)
    if direct is not None:
        return _unless_worse(view, direct, before)
    best = find_least_imbalance(packing, spread)
    if best is None or not (must or _is_worth(view, best, before)):
        return None
    bound = min(before, max(target, _imbalance_after(view, best) + TOLERANCE))
    return _unless_worse(view, find_least_cost(packing, bound, spread) or best, before)


def _place_leaving(view: StateView, packing: Packing) -> Mapping[Bin, str]:
    """Place the bins of the leaving: evenly first, then with as little traffic between hosts as can be."""
    for spread in (True, False) if packing.size() <= EXACT_UP_TO else ():
        best = find_least_imbalance(packing, spread)
        if best is not None:
            loads = dict(zip(packing.bins, packing.loads.tolist(), strict=True))
            bound = measure_imbalance(loads, best, packing.workers) + TOLERANCE
            return find_least_cost(packing, bound, spread) or best
    return smooth(view, EVEN_ENOUGH, {one.worker for one in packing.workers})


def _imbalance_after(view: StateView, placement: Mapping[Bin, str]) -> float:
    return view.place(placement).imbalance()


def _is_worth(view: StateView, placement: Mapping[Bin, str], before: float) -> bool:
    return _imbalance_after(view, placement) + TOLERANCE < before


def _unless_worse(view: StateView, placement: Mapping[Bin, str], before: float) -> Mapping[Bin, str] | None:
    return placement if _imbalance_after(view, placement) <= before + 1e-9 else None


def _list_assignments(states: tuple[BinState, ...], placement: Mapping[Bin, str]) -> tuple[Assignment, ...]:
    return tuple(
        Assignment(state.bin, state.worker, placement[state.bin])
        for state in states
        if state.worker is not None and placement.get(state.bin, state.worker) != state.worker
    )


@dataclass(slots=True)
class _OperatorBins:
    """The bins of one operator by worker, while they are being shifted."""

    slots: dict[str, int]
    at: dict[str, set[Bin]] = field(default_factory=dict)
    load: dict[str, float] = field(default_factory=dict)

    def put(self, bin_: Bin, worker: str, load: float) -> None:
        self.at.setdefault(worker, set()).add(bin_)
        self.load[worker] = self.load.get(worker, 0.0) + load

    def shift(self, bin_: Bin, source: str, target: str, load: float) -> None:
        self.at[source].discard(bin_)
        self.load[source] -= load
        self.put(bin_, target, load)

    def per_slot(self, worker: str) -> float:
        return self.load.get(worker, 0.0) / self.slots[worker]

    def fullest(self) -> str:
        return max(self.slots, key=lambda worker: (self.per_slot(worker), worker))

    def emptiest(self) -> str:
        return min(self.slots, key=lambda worker: (self.per_slot(worker), worker))

    def even(self) -> float:
        return sum(self.load.values()) / sum(self.slots.values())


def _level(operator: _OperatorBins, target: float, loads: dict[Bin, float], sizes: dict[Bin, int]) -> None:
    """Shift bins until the fullest worker is within the target, or no single move makes it lighter."""
    limit = (1 + target) * operator.even()
    while operator.load and operator.per_slot(operator.fullest()) > limit:
        source, target_worker = operator.fullest(), operator.emptiest()
        held = operator.load.get(target_worker, 0.0)
        room = operator.per_slot(source) * operator.slots[target_worker] - held
        wanted = operator.load[source] - limit * operator.slots[source]
        fitting = [one for one in operator.at[source] if loads[one] < room * (1 - 1e-9)]
        if not fitting:
            return
        # bytes for each second of load that is really wanted gone: more than that is no gain
        chosen = min(fitting, key=lambda one: (sizes[one] / min(loads[one], wanted), one))
        operator.shift(chosen, source, target_worker, loads[chosen])
