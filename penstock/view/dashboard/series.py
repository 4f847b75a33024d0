"""The data of one application's charts, as columns that its script draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.view import figures
from penstock.view.colours import CAUSE_COLOURS, GREY
from penstock.view.words import WORDS, describe_change, describe_effect, name_cause, name_decision

MARKED = ("scale-out", "scale-in", "move-state", "rejected", "failed", "by-hand")
"""Kinds of decisions that are marks on the axis of time; others say that nothing was to be done."""
BY_HAND = ("paused by ", "resumed by ")
CAUSES_SHOWN = 8
LISTED = 60

Plain = Mapping[str, Any]


def gather_series(status: Plain) -> dict[str, Any]:
    """Gather the columns over time, and the marks of decisions."""
    recent = status.get("recent", ())
    columns = {
        key: [point.get(key) for point in recent]
        for key in (
            "at",
            "offered_per_second",
            "observed_per_second",
            "backlog_records",
            "batch_seconds",
            "period_seconds",
            "latency_seconds",
            "executors",
        )
    }
    needed = [_count_needed(point) for point in recent]
    marks = [describe_decision(one) for one in status.get("decisions", ()) if name_kind(one) in MARKED]
    return {**columns, "executors_needed": needed, "marks": marks}


def _count_needed(point: Plain) -> float | None:
    slots, executors, needed = (point.get(key) for key in ("slots_held", "executors", "slots_needed"))
    return needed / (slots / executors) if slots and executors and needed is not None else None


def name_kind(decision: Plain) -> str:
    """Name the kind of a decision; what people did has one of its own."""
    by_hand = str(decision.get("reason", "")).startswith(BY_HAND)
    return "by-hand" if by_hand else str(decision.get("kind", ""))


def describe_decision(decision: Plain) -> dict[str, Any]:
    """Write a decision out, as a mark and as a row of the table."""
    kind = name_kind(decision)
    named = {**decision, "kind": "by hand"} if kind == "by-hand" else decision
    return {
        "at": decision.get("at"),
        "kind": kind,
        "word": name_decision(named),
        "when": figures.clock(decision.get("at")),
        "change": describe_change(decision),
        "reason": str(decision.get("reason", "")),
        "effect": describe_effect(decision),
    }


def list_decisions(status: Plain) -> list[dict[str, Any]]:
    """List the latest decisions, the newest first."""
    return [describe_decision(one) for one in reversed(status.get("decisions", ())[-LISTED:])]


def gather_waits(status: Plain) -> list[dict[str, Any]]:
    """Gather what batches waited for, query by query: a column of seconds for each cause."""
    return [
        {
            "query": str(query.get("name", "")),
            "period": query.get("period_seconds"),
            "at": [window["at"] for window in windows],
            "told": [
                f"batch {window['batch_id']}, {figures.seconds(window['seconds'])}: {window['answer']}"
                for window in windows
            ],
            "causes": [_describe_cause(cause, windows) for cause in _list_largest(windows)],
        }
        for query in status.get("queries", ())
        if (windows := query.get("critical_windows"))
    ]


def _list_largest(windows: Sequence[Plain]) -> list[str]:
    seconds: dict[str, float] = {}
    for window in windows:
        for cause, share in window["causes"].items():
            seconds[cause] = seconds.get(cause, 0.0) + share * window["seconds"]
    return sorted(seconds, key=lambda cause: -seconds[cause])[:CAUSES_SHOWN]


def _describe_cause(cause: str, windows: Sequence[Plain]) -> dict[str, Any]:
    seconds = [window["causes"].get(cause, 0.0) * window["seconds"] for window in windows]
    return {"name": name_cause(cause), "colour": CAUSE_COLOURS.get(cause, GREY), "seconds": seconds}


WORDS_OF_MARKS = {**{kind: WORDS.get(kind, kind) for kind in MARKED}, "by-hand": "by hand"}
"""The legend of the marks."""
