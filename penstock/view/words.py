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
    """From how many to how many executors, or how many bins, where the decision is a change."""
    if decision.get("bins"):
        return f"{figures.count(decision['bins'])} bins"
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


def critical(query: Mapping[str, Any]) -> str:
    """What the query's newest analysed batch waited for: in words, and the largest of each kind."""
    found = query.get("critical") or {}
    if not found:
        return ""
    largest = [
        f"{kind} {found[kind]['name']} {found[kind]['share']:.0%}"
        for kind in ("activity", "worker", "operator")
        if kind in found
    ]
    return f"{query['name']}, critical path: {found['answer']} ({', '.join(largest)})"


def cause_word(cause: str) -> str:
    """What the views call a cause of time on the critical path."""
    return CAUSES.get(cause, cause)


def in_flight(status: Mapping[str, Any]) -> str:
    """The action under way, or nothing."""
    action = status.get("action_in_flight")
    if not action:
        return ""
    since = figures.seconds(max(0.0, status.get("now", action["since"]) - action["since"]))
    resized = f"changing {change(action)} executors" if action.get("to") is not None else ""
    return f"{', '.join(filter(None, (resized, _moving(action)))) or 'acting'}, for {since}"


def _moving(action: Mapping[str, Any]) -> str:
    standing = action.get("migration") or {}
    if standing.get("state") != "moving":
        return ""
    return f"moving state, {figures.count(standing['moved'])} of {figures.count(standing['of'])} bins"


def brief(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The few lines that a notebook shows: label and text."""
    latest = status.get("last_decision")
    lines = [
        ("application", f"{status.get('name') or ''} {status['application']}".strip()),
        ("policy", f"{status['policy']}, {mode(status)}"),
        ("executors", figures.count(status.get("executors"))),
        (
            "slots",
            f"{figures.count(status.get('slots'))} held, {figures.count(status.get('slots_needed'))} needed",
        ),
    ]
    for query in status.get("queries", ()):
        offered, observed = query.get("offered_per_second"), query.get("observed_per_second")
        lines.append(
            (str(query["name"]), f"{figures.rate(offered)} offered, {figures.rate(observed)} observed")
        )
        if found := query.get("critical"):
            lines.append(("critical path", str(found["answer"])))
    if latest:
        lines.append(("last decision", f"{decision_word(latest)}: {latest['reason']}"))
    if status.get("error"):
        lines.append(("stepping aside", str(status["error"])))
    return lines
