"""State and plans as plain data, for the control socket and for whoever prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.migrate.bins import StateView
from penstock.migrate.plan import Plan, plain_move, settled


def plain_state(views: Sequence[StateView], obstacle: str | None) -> dict[str, Any]:
    """Where the state of each query lies."""
    workers = {worker.worker: worker for view in views for worker in view.workers}
    return {
        "obstacle": obstacle,
        "queries": [_plain_view(view) for view in views],
        "workers": [
            {"worker": worker.worker, "host": worker.host, "slots": worker.slots}
            for worker in workers.values()
        ],
    }


def plain_plan(view: StateView, plan: Plan) -> dict[str, Any]:
    """What a plan moves, how many bytes and batches that takes, and what it brings."""
    sizes = {state.bin: state.bytes for state in view.bins}
    return {
        "query": view.query,
        "name": view.name,
        "strategy": plan.strategy.value,
        "reason": plan.reason,
        "moves": [{**plain_move(move), "bytes": sizes.get(move.bin, 0)} for move in plan.moves],
        "batches": (plan.last_batch() or view.batch) - view.batch,
        "bytes": sum(sizes.get(move.bin, 0) for move in plan.moves),
        "imbalance_before": view.imbalance(),
        "imbalance_after": settled(view, plan).imbalance(),
    }


def _plain_view(view: StateView) -> dict[str, Any]:
    bins = [
        {
            "operator": state.bin.operator,
            "partition": state.bin.partition,
            "worker": state.worker,
            "rows": state.rows,
            "bytes": state.bytes,
            "load_seconds": state.load_seconds,
        }
        for state in view.bins
    ]
    return {
        "query": view.query,
        "name": view.name,
        "batch": view.batch,
        "imbalance": view.imbalance(),
        "bins": bins,
    }
