"""The map of bins on executors as plain data: values in, dict out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.view import figures
from penstock.view.state_terminal import group_by_worker, list_amounts, warn_of_few_bins

LEVELS = 6
"""Shades of a bin, beside that of an empty one."""
HOT_TIMES = 2.0
"""A bin is hot whose load is so many times the mean of its operator."""
MOST_BINS = 2000
"""Bins drawn of one query; the heaviest, where it has more."""
MOVES_SHOWN = 50
MEASURES = (("load", "load_seconds"), ("bytes", "bytes"), ("rows", "rows"))

Plain = Mapping[str, Any]
Place = tuple[str, int, int]
"""A bin of a query: its query, operator and partition."""


def find_places(state: Plain) -> dict[Place, str]:
    """Map every bin to the executor that it lies on."""
    return {
        (str(query["query"]), one["operator"], one["partition"]): str(one["worker"] or "")
        for query in state["queries"]
        for one in query["bins"]
    }


def describe_map(state: Plain, migration: Plain | None, moved: Collection[Place] = ()) -> dict[str, Any]:
    """Return the tiles and, query by query, each executor with its bins; `moved` have just come there."""
    bins = [one for query in state["queries"] for one in query["bins"]]
    worst = max((query["imbalance"] for query in state["queries"]), default=None)
    return {
        "obstacle": state.get("obstacle"),
        "figures": [
            ("bins", figures.count(len(bins)), f"on {figures.count_of(len(state['workers']), 'executor')}"),
            ("rows", figures.count(sum(one["rows"] for one in bins)), "in all"),
            ("state", figures.size(sum(one["bytes"] for one in bins)), "in all"),
            ("imbalance", figures.share(worst), "fullest executor over the mean"),
        ],
        "migration": describe_migration(migration),
        "queries": [_describe_query(query, state["workers"], set(moved)) for query in state["queries"]],
    }


def describe_migration(migration: Plain | None) -> dict[str, Any] | None:
    """Return how the last migration stands; None before the first."""
    if migration is None:
        return None
    moved, of = int(migration.get("moved") or 0), int(migration.get("of") or 0)
    batch, steady = migration.get("batch_seconds"), migration.get("steady_seconds")
    took = (
        f"a batch takes {figures.seconds(batch)}, {figures.seconds(steady)} without moving" if batch else ""
    )
    return {
        "moving": migration.get("state") == "moving",
        "word": str(migration.get("state", "")),
        "counted": f"{figures.count(moved)} of {figures.count(of)} bins moved",
        "percent": round(100 * moved / of, 1) if of else 0.0,
        "detail": str(migration.get("detail") or took),
    }


def describe_plans(plans: Sequence[Plain]) -> list[dict[str, Any]]:
    """Return what plans would move and bring, with their first moves."""
    return [
        {
            "name": str(plan.get("name") or plan["query"]),
            "reason": str(plan["reason"]),
            "said": f"{figures.count_of(len(plan['moves']), 'bin')}, {figures.size(plan['bytes'])}, "
            f"{plan['strategy']}, {'at least ' if plan['strategy'] == 'optimized' else ''}"
            f"{figures.count(plan['batches'])} batches",
            "imbalance": f"imbalance {figures.share(plan['imbalance_before'])} → "
            f"{figures.share(plan['imbalance_after'])}",
            "moves": [
                {
                    "batch": figures.count(move["batch"]),
                    "bin": f"{move['operator']}/{move['partition']}",
                    "from": str(move["from"]),
                    "to": str(move["to"]),
                    "bytes": figures.size(move["bytes"]),
                }
                for move in plan["moves"][:MOVES_SHOWN]
            ],
            "left": max(0, len(plan["moves"]) - MOVES_SHOWN),
        }
        for plan in plans
    ]


def _describe_query(query: Plain, workers: Sequence[Plain], moved: set[Place]) -> dict[str, Any]:
    most = {key: max((one[key] for one in query["bins"]), default=0) for _, key in MEASURES}
    means = _average_loads(query["bins"])
    drawn = _choose_drawn(query["bins"])
    held = group_by_worker(query, workers)
    fullest = max((one["load_per_slot"] or 0.0 for one in held), default=0.0)
    return {
        "name": str(query.get("name") or query["query"]),
        "batch": figures.count(query["batch"]),
        "imbalance": figures.share(query.get("imbalance")),
        "warnings": warn_of_few_bins(query, workers),
        "left": len(query["bins"]) - len(drawn),
        "executors": [
            {
                "worker": one["worker"],
                "host": one["host"],
                "known": one["slots"] is not None,
                "amounts": list_amounts(one),
                "percent": round(100 * (one["load_per_slot"] or 0.0) / fullest, 1) if fullest else 0.0,
                "bins": [
                    _describe_bin(str(query["query"]), state, most, means, moved)
                    for state in sorted(
                        one["bins"], key=lambda state: (state["operator"], state["partition"])
                    )
                    if _name(state) in drawn
                ],
            }
            for one in held
        ],
    }


def _describe_bin(
    query: str, state: Plain, most: Plain, means: Mapping[int, float], moved: set[Place]
) -> dict[str, Any]:
    operator, partition, load = state["operator"], state["partition"], state["load_seconds"]
    hot = is_hot(load, means[operator])
    amounts = f"{figures.count(state['rows'])} rows, {figures.size(state['bytes'])}"
    said = f"bin {operator}/{partition}: {amounts}, {figures.seconds(load)} a batch"
    return {
        "text": f"{operator}/{partition}" if len(means) > 1 else str(partition),
        "hot": hot,
        "moved": (query, operator, partition) in moved,
        "levels": {name: find_level(state[key], most[key]) for name, key in MEASURES},
        "title": f"{said}; {load / means[operator]:.1f} times the mean" if hot else said,
    }


def is_hot(load: float, mean: float) -> bool:
    """Tell whether a bin takes far more than the others of its operator."""
    return load > 0 and load >= HOT_TIMES * mean


def find_level(value: float, most: float) -> int:
    """Return the shade of a value, from 0 for nothing to `LEVELS` for the most."""
    if value <= 0 or most <= 0:
        return 0
    return min(LEVELS, 1 + int(LEVELS * value / most))


def _average_loads(bins: Sequence[Plain]) -> dict[int, float]:
    loads: dict[int, list[float]] = {}
    for one in bins:
        loads.setdefault(one["operator"], []).append(float(one["load_seconds"]))
    return {operator: sum(values) / len(values) for operator, values in loads.items()}


def _name(state: Plain) -> tuple[int, int]:
    return state["operator"], state["partition"]


def _choose_drawn(bins: Sequence[Plain]) -> set[tuple[int, int]]:
    heaviest = sorted(bins, key=lambda one: (-one["load_seconds"], -one["bytes"], _name(one)))
    return {_name(one) for one in heaviest[:MOST_BINS]}
