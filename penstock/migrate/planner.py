"""Where bins should be: the least bytes moved for a wanted balance, and the way off workers that leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from penstock.errors import BadInput
from penstock.migrate.bins import Bin, BinState, StateView, imbalance
from penstock.migrate.packing import Packing, least_cost, least_imbalance
from penstock.migrate.smoothing import smoothed

TIE = 0.01
"""What the number of moves and the way between hosts may weigh together, in parts of the smallest bin: they
decide between plans of equal bytes and no others."""
HOT_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """What the planner aims at.

    `imbalance_target` is by how much the fullest worker's load per slot may exceed the mean. Where whole bins
    do not allow that, the aim is the least they allow plus `tolerance`. A bin is hot when its load exceeds
    `hot_factor` times the median of its operator. Up to `exact_up_to` pairs of bin and worker the bytes moved
    are proven least; beyond, they are what a greedy search finds.
    """

    imbalance_target: float = 0.1
    tolerance: float = 0.02
    hot_factor: float = HOT_FACTOR
    exact_up_to: int = 8192


@dataclass(frozen=True, slots=True)
class Assignment:
    """A bin that should go from one worker to another; when is not said yet."""

    bin: Bin
    source: str
    target: str


def balance(view: StateView, settings: PlannerSettings | None = None) -> tuple[Assignment, ...]:
    """The moves of least bytes that reach the wanted balance; it never ends worse than it began."""
    settings = settings or PlannerSettings()
    alive = {worker.worker for worker in view.workers}
    states = tuple(state for state in view.bins if state.worker in alive)
    if not states or len(alive) < 2:
        return ()
    packing, before = _packing(view, states, settings), view.imbalance()
    unspread = not packing.is_spread(view.placement())
    if before <= settings.imbalance_target and not unspread:
        return ()
    for spread in (True, False):
        placement = _rebalanced(view, packing, before, settings, spread, must=spread and unspread)
        if placement is not None:
            return _assignments(states, placement)
    return ()


def drain(
    view: StateView, leaving: Collection[str], settings: PlannerSettings | None = None
) -> tuple[Assignment, ...]:
    """The moves of all bins off the workers that leave; those who stay end as even as they can."""
    settings = settings or PlannerSettings()
    here = {worker.worker for worker in view.workers}
    unknown = sorted(set(leaving) - here)
    if unknown:
        raise BadInput(f"there is no executor {unknown[0]}; there are: {', '.join(sorted(here))}")
    if not here - set(leaving):
        raise BadInput("an executor must stay: the bins of those that leave have nowhere to go")
    states = tuple(state for state in view.bins if state.worker in here)
    if not any(state.worker in leaving for state in states):
        return ()
    packing = _packing(view, states, settings, frozenset(leaving))
    return _assignments(states, _drained(view, packing, settings))


def hot_bins(view: StateView, factor: float = HOT_FACTOR) -> frozenset[Bin]:
    """Bins whose load is far above the median of their operator: the stragglers that skew makes."""
    loads = view.loads()
    by_operator: dict[int, list[float]] = {}
    for bin_, load in loads.items():
        by_operator.setdefault(bin_.operator, []).append(load)
    middle = {operator: median(of_operator) for operator, of_operator in by_operator.items()}
    return frozenset(bin_ for bin_, load in loads.items() if load > factor * middle[bin_.operator])


def _packing(
    view: StateView,
    states: tuple[BinState, ...],
    settings: PlannerSettings,
    leaving: frozenset[str] = frozenset(),
) -> Packing:
    """The bins and the workers that may have them; with workers that leave, only their bins may move."""
    workers = tuple(worker for worker in view.workers if worker.worker not in leaving)
    host = {worker.worker: worker.host for worker in view.workers}
    unit = min((state.bytes for state in states if state.bytes > 0), default=1)
    loads, hot = view.loads(), hot_bins(view, settings.hot_factor)

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


def _rebalanced(
    view: StateView, packing: Packing, before: float, settings: PlannerSettings, spread: bool, must: bool
) -> Mapping[Bin, str] | None:
    """A placement no worse than before, or nothing where there is none that is worth a move."""
    target = settings.imbalance_target
    if packing.size() > settings.exact_up_to:
        found = smoothed(view, target)
        return found if _worth(view, found, before, settings) else None
    direct = least_cost(packing, min(before, target), spread)
    if direct is not None:
        return _if_not_worse(view, direct, before)
    best = least_imbalance(packing, spread)
    if best is None or not (must or _worth(view, best, before, settings)):
        return None
    bound = min(before, max(target, _imbalance(view, best) + settings.tolerance))
    return _if_not_worse(view, least_cost(packing, bound, spread) or best, before)


def _drained(view: StateView, packing: Packing, settings: PlannerSettings) -> Mapping[Bin, str]:
    """Bins of the leaving at those who stay: evenly, then with as little traffic between hosts as can be."""
    if packing.size() > settings.exact_up_to:
        return smoothed(view, settings.imbalance_target, {one.worker for one in packing.workers})
    for spread in (True, False):
        best = least_imbalance(packing, spread)
        if best is not None:
            loads = dict(zip(packing.bins, packing.loads.tolist(), strict=True))
            bound = imbalance(loads, best, packing.workers) + settings.tolerance
            return least_cost(packing, bound, spread) or best
    return smoothed(view, settings.imbalance_target, {one.worker for one in packing.workers})


def _imbalance(view: StateView, placement: Mapping[Bin, str]) -> float:
    return view.placed(placement).imbalance()


def _worth(view: StateView, placement: Mapping[Bin, str], before: float, settings: PlannerSettings) -> bool:
    """Whether a placement is better by more than the tolerance: less is within the noise of loads."""
    return _imbalance(view, placement) + settings.tolerance < before


def _if_not_worse(view: StateView, placement: Mapping[Bin, str], before: float) -> Mapping[Bin, str] | None:
    return placement if _imbalance(view, placement) <= before + 1e-9 else None


def _assignments(states: tuple[BinState, ...], placement: Mapping[Bin, str]) -> tuple[Assignment, ...]:
    return tuple(
        Assignment(state.bin, state.worker, placement[state.bin])
        for state in states
        if state.worker is not None and placement.get(state.bin, state.worker) != state.worker
    )
