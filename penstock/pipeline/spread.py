"""Over which executors the state of a keyed function lies, when it is to have more or fewer instances."""

from __future__ import annotations

from dataclasses import replace

from penstock.migrate.bins import Bin, StateView
from penstock.migrate.planner import Assignment, balance, drain


def executors_for(instances: int, slots_per_executor: int, here: int) -> int:
    """Whole executors with room for so many instances; no more than there are, and one at least."""
    return max(1, min(here, -(-instances // max(1, slots_per_executor))))


def hosts(view: StateView) -> frozenset[str]:
    """The executors that are there and have bins of this function."""
    here = {worker.worker for worker in view.workers}
    return frozenset(state.worker for state in view.bins if state.worker in here and state.worker)


def spread_over(view: StateView, executors: int) -> tuple[Assignment, ...]:
    """The moves after which so many executors have the bins, evenly; those that have most keep theirs."""
    here = {worker.worker for worker in view.workers}
    chosen = _fullest(view, executors)
    leaving = here - chosen
    after = view
    if leaving & hosts(view):
        after = _done(view, drain(view, leaving))
    within = replace(after, workers=tuple(one for one in view.workers if one.worker in chosen))
    after = _done(after, balance(within))
    return _between(view, after)


def _fullest(view: StateView, executors: int) -> frozenset[str]:
    held = {worker.worker: 0 for worker in view.workers}
    for state in view.bins:
        if state.worker in held:
            held[state.worker] += 1
    ordered = sorted(held, key=lambda worker: (-held[worker], _age(worker)))
    return frozenset(ordered[:executors])


def _age(worker: str) -> tuple[int, str]:
    """Spark numbers executors as they come."""
    return (int(worker) if worker.isdecimal() else 0, worker)


def _done(view: StateView, moves: tuple[Assignment, ...]) -> StateView:
    return view.placed({move.bin: move.target for move in moves})


def _between(before: StateView, after: StateView) -> tuple[Assignment, ...]:
    """One move for each bin that ends elsewhere, however often it was planned."""
    target: dict[Bin, str] = after.placement()
    return tuple(
        Assignment(state.bin, state.worker, target[state.bin])
        for state in before.bins
        if state.worker is not None and target[state.bin] != state.worker
    )
