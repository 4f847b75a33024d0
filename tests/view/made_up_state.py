"""A made-up state: a third executor has just come and holds little yet; bin 3 is hot."""

from __future__ import annotations

from typing import Any


def a_query(name: str = "counts", bins: int = 12, operators: int = 1) -> dict[str, Any]:
    return {
        "query": f"5f0c-{name}",
        "name": name,
        "batch": 120,
        "imbalance": 0.62,
        "bins": [
            {
                "operator": operator,
                "partition": number,
                "worker": "3" if number == bins - 1 else str(1 + number % 2),
                "rows": 10_000 + 137 * number,
                "bytes": 1_200_000 + 90_000 * number,
                "load_seconds": 1.9 if number == 3 else 0.3 + 0.01 * number,
            }
            for operator in range(operators)
            for number in range(bins)
        ],
    }


def state(**changes: Any) -> dict[str, Any]:
    return {
        "obstacle": None,
        "queries": [a_query(), a_query("joins", 8, 2)],
        "workers": [{"worker": str(one), "host": f"10.0.0.{one}", "slots": 2} for one in (1, 2, 3)],
        **changes,
    }


def a_plan(**changes: Any) -> dict[str, Any]:
    moves = [
        {
            "batch": 122 + number,
            "operator": 0,
            "partition": number,
            "from": "1",
            "to": "3",
            "bytes": 1_000_000,
        }
        for number in range(3)
    ]
    return {
        "query": "5f0c-counts",
        "name": "counts",
        "strategy": "fluid",
        "reason": "state lies unevenly",
        "moves": moves,
        "batches": 4,
        "bytes": 3_000_000,
        "imbalance_before": 0.62,
        "imbalance_after": 0.05,
        **changes,
    }
