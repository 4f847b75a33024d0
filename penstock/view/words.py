"""The words of the views for modes, decisions and their effects, the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.view import figures

WORDS = {
    "scale-out": "scale out",
    "scale-in": "scale in",
    "rejected": "rejected",
    "hold": "hold",
    "wait": "wait",
    "failed": "stepped aside",
}


def mode(status: Mapping[str, Any]) -> str:
    """What the autopilot is doing with this application."""
    if status.get("paused"):
        return "paused"
    return "observing only" if status.get("mode") == "observe" else "acting"


def decision_word(decision: Mapping[str, Any]) -> str:
    """The kind of a decision, and how often it was taken in a row."""
    kind = str(decision.get("kind", ""))
    repeated = int(decision.get("count", 1) or 1)
    return WORDS.get(kind, kind) + (f" ×{repeated}" if repeated > 1 else "")


def change(decision: Mapping[str, Any]) -> str:
    """From how many to how many, where the decision is a change."""
    before, after = decision.get("from"), decision.get("to")
    if after is None:
        return ""
    return f"{figures.count(before)} → {figures.count(after)}"


def effect(decision: Mapping[str, Any]) -> str:
    """What was expected, and what came of it."""
    parts = []
    if decision.get("expected"):
        parts.append(f"expected: {decision['expected']}")
    outcome = decision.get("outcome")
    if outcome:
        detail = f" ({outcome['detail']})" if outcome.get("detail") else ""
        parts.append(f"{outcome.get('status')} in {figures.seconds(outcome.get('seconds'))}{detail}")
    return "; ".join(parts)


def in_flight(status: Mapping[str, Any]) -> str:
    """The action under way, or nothing."""
    action = status.get("action_in_flight")
    if not action:
        return ""
    since = figures.seconds(max(0.0, status.get("now", action["since"]) - action["since"]))
    return f"changing {change(action)} executors, for {since}"
