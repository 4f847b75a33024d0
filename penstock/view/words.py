"""The words of the views for modes, decisions and their effects, the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.view import figures

WORDS = {
    "scale-out": "scale out",
    "scale-in": "scale in",
    "move-state": "move state",
    "rejected": "rejected",
    "hold": "hold",
    "wait": "wait",
    "failed": "stepped aside",
}

CAUSES = {
    "run": "run of tasks",
    "gc": "garbage collection",
    "fetch": "shuffle fetch",
    "scheduling": "driver's scheduling",
    "batch log": "offsets and logs",
    "program": "driver's program",
    "executors": "executor start",
    "trigger": "wait for trigger",
    "result": "results",
    "failed": "failed tasks",
}


def name_decision(decision: Mapping[str, Any]) -> str:
    """Name the kind of a decision, and how often it was taken in a row."""
    kind = str(decision.get("kind", ""))
    repeated = int(decision.get("count", 1) or 1)
    return WORDS.get(kind, kind) + (f" ×{repeated}" if repeated > 1 else "")


def describe_change(decision: Mapping[str, Any]) -> str:
    """Say from how many to how many executors, or how many bins, where the decision is a change."""
    if decision.get("bins"):
        return f"{figures.count(decision['bins'])} bins"
    before, after = decision.get("from"), decision.get("to")
    if after is None:
        return ""
    return f"{figures.count(before)} → {figures.count(after)}"


def describe_effect(decision: Mapping[str, Any]) -> str:
    """Say what was expected, and what came of it."""
    parts = []
    if decision.get("expected"):
        parts.append(f"expected: {decision['expected']}")
    outcome = decision.get("outcome")
    if outcome:
        detail = f" ({outcome['detail']})" if outcome.get("detail") else ""
        parts.append(f"{outcome.get('status')} in {figures.seconds(outcome.get('seconds'))}{detail}")
    return "; ".join(parts)


def describe_critical_path(query: Mapping[str, Any]) -> str:
    """Say what the query's newest analysed batch waited for, with the largest of each kind."""
    found = query.get("critical") or {}
    if not found:
        return ""
    largest = [
        f"{kind} {found[kind]['name']} {found[kind]['share']:.0%}"
        for kind in ("activity", "worker", "operator")
        if kind in found
    ]
    return f"{query['name']}, critical path: {found['answer']} ({', '.join(largest)})"


def name_cause(cause: str) -> str:
    """Name a cause of time on the critical path."""
    return CAUSES.get(cause, cause)


def describe_action_in_flight(status: Mapping[str, Any]) -> str:
    """Describe the action under way, or return nothing."""
    action = status.get("action_in_flight")
    if not action:
        return ""
    since = figures.seconds(max(0.0, status.get("now", action["since"]) - action["since"]))
    resized = f"changing {describe_change(action)} executors" if action.get("to") is not None else ""
    return f"{', '.join(filter(None, (resized, _moving(action)))) or 'acting'}, for {since}"


def _moving(action: Mapping[str, Any]) -> str:
    standing = action.get("migration") or {}
    if standing.get("state") != "moving":
        return ""
    return f"moving state, {figures.count(standing['moved'])} of {figures.count(standing['of'])} bins"
