"""Plans become the action that the loop journals and performs."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.decide.policy import ExpectedEffect, MoveState
from penstock.migrate.bins import StateView
from penstock.migrate.plan import Plan, settled


def move_state(plans: Sequence[tuple[StateView, Plan]], reason: str) -> MoveState:
    """The action that carries out these plans."""
    moves = tuple((str(move.bin), move.source, move.target) for _, plan in plans for move in plan.moves)
    before = max(view.imbalance() for view, _ in plans)
    after = max(settled(view, plan).imbalance() for view, plan in plans)
    sizes = {state.bin: state.bytes for view, _ in plans for state in view.bins}
    moved = sum(sizes.get(move.bin, 0) for _, plan in plans for move in plan.moves)
    figures = {"imbalance_ratio": after, "bytes_moved": float(moved)}
    names = ", ".join(view.name for view, _ in plans)
    why = f"{reason} in {names}: the fullest executor has {before:.0%} more load a slot than the mean"
    summary = f"{len(moves)} bins move, and it has {after:.0%} more"
    return MoveState(moves, why, ExpectedEffect(summary, figures), tuple(plan.plain() for _, plan in plans))


def gain(view: StateView, plan: Plan) -> float:
    """How much imbalance the plan takes away."""
    return view.imbalance() - settled(view, plan).imbalance()
