"""A made-up run: the rate doubles, the autopilot grows the application, the rate falls, it shrinks again."""

from __future__ import annotations

from typing import Any

START = 1_763_251_200.0
STEP = 5.0


def point(index: int) -> dict[str, Any]:
    high = 12 <= index < 32
    held = 4 if index < 17 else 10 if index < 39 else 4
    offered = 1200.0 if high else 500.0
    observed = min(offered, held * 125.0) if index != 17 else 900.0
    behind = max(0, index - 11) * 3500.0 if 12 <= index < 17 else max(0.0, 17500 - (index - 16) * 4000)
    return {
        "at": START + index * STEP,
        "offered_per_second": offered + (index % 3) * 9,
        "observed_per_second": observed + (index % 4) * 7,
        "backlog_records": behind if index >= 12 else 0.0,
        "batch_seconds": 4.1 if not high else (11.8 if held == 4 else 7.6) + (index % 5) * 0.1,
        "period_seconds": 10.0,
        "slots_needed": None if index < 3 else 10 if high else 4,
        "slots_held": held,
        "executors": held // 2,
    }


def critical_window(index: int) -> dict[str, Any]:
    """The batch of this point: its tasks fetch more while the rate is high."""
    seen = point(index)
    fetch = 0.25 if seen["offered_per_second"] > 1000 else 0.05
    causes = {"run": 0.73 - fetch, "fetch": fetch, "scheduling": 0.12, "batch log": 0.08, "gc": 0.07}
    return {
        "batch_id": index // 2,
        "at": seen["at"],
        "seconds": seen["batch_seconds"],
        "causes": causes,
        "answer": f"{causes['run']:.0%} of the critical path is the run of tasks. Most is count <by> word.",
        "activity": {"name": "processing", "share": causes["run"]},
        "worker": {"name": "executor 1 slot 0", "share": 0.4},
        "operator": {"name": "count <by> word", "share": 0.6},
    }


def decision(index: int, kind: str, reason: str, **more: Any) -> dict[str, Any]:
    return {"at": START + index * STEP, "kind": kind, "reason": reason, "count": 1, **more}


def status(**changes: Any) -> dict[str, Any]:
    recent = [point(index) for index in range(48)]
    decisions = [
        decision(2, "wait", "warming up: 1 of 1 intervals ignored", count=2),
        decision(10, "hold", "4 slots are needed and held", count=8),
        decision(
            16,
            "scale-out",
            "counts needs 10 slots to read 1,200 records/s in 80 % of its trigger of 10 s; 4 are held",
            **{
                "from": 2,
                "to": 5,
                "expected": "batch time 7.6 s, backlog read in 2 min",
                "outcome": {"status": "done", "seconds": 6.2, "detail": "5 registered after 6 s"},
            },
        ),
        decision(34, "rejected", "a smaller size must be proposed for 60 s", guardrail="scale_down_delay"),
        decision(
            38,
            "scale-in",
            "counts needs 4 slots for 500 records/s; <b>10</b> are held",
            **{
                "from": 5,
                "to": 2,
                "expected": "batch time 4.1 s",
                "outcome": {"status": "done", "seconds": 14.0, "detail": "released executors 3, 4, 5"},
            },
        ),
        decision(47, "hold", "4 slots are needed and held", count=8),
    ]
    made: dict[str, Any] = {
        "application": "app-20251116000000-0001",
        "name": "word <count>",
        "policy": "ds2",
        "mode": "act",
        "paused": False,
        "now": recent[-1]["at"],
        "executors": 2,
        "slots": 4,
        "slots_needed": 4,
        "queries": [
            {
                "name": "counts",
                "offered_per_second": 518.0,
                "observed_per_second": 521.0,
                "backlog_records": 0.0,
                "batch_seconds": 4.1,
                "period_seconds": 10.0,
                "slots_needed": 4,
                "critical": critical_window(46),
                "critical_windows": [critical_window(index) for index in range(0, 48, 2)],
            }
        ],
        "last_decision": {"at": decisions[-1]["at"], "kind": "hold", "reason": decisions[-1]["reason"]},
        "action_in_flight": None,
        "recent": recent,
        "decisions": decisions,
        "warnings": [],
        "advice": [],
        "error": None,
    }
    return {**made, **changes}
