"""Records read from the journal, and the plain form in which answers and verdicts are kept there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.summary import QuerySummary
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect, Hold, MoveState, Proposal, Resize, Scale
from penstock.decide.verdict import (
    Accepted,
    NothingToDo,
    Rejected,
    Verdict,
    Waiting,
    strip_figures,
    verdict_key,
)

RATES = ("offered_per_second", "observed_per_second", "backlog_records")
"""Figures of a query that are always there, as NaN where they could not be measured."""

Plain = dict[str, Any]
Kind = TypeVar("Kind", "ObservationRecord", "DecisionRecord", "ActionRecord")


@dataclass(frozen=True, slots=True)
class ObservationRecord:
    """One observed window [start, at), reduced to what people and later reports read."""

    application: str
    at: float
    start: float
    parallelism: Mapping[str, int]
    slots: int
    queries: tuple[QuerySummary, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of an application, as its observations tell: when, and what it held in all, first, at most."""

    application: str
    first_at: float
    last_at: float
    slot_seconds: float
    slots_at_start: int
    slots_at_peak: int
    executor_seconds: float
    executors_at_start: int
    executors_at_peak: int

    @property
    def usage(self) -> Plain:
        """The size held, as a status tells it."""
        kept = [one.name for one in fields(self) if one.name not in ("application", "first_at", "last_at")]
        return {"seconds": self.last_at - self.first_at, **{name: getattr(self, name) for name in kept}}


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """An answer of the policy and the manager's verdict, `count` times in a row from first to last."""

    decision_id: int
    application: str
    policy: str
    first_at: float
    last_at: float
    count: int
    answer: Mapping[str, Any]
    verdict: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The verdict in one word: accepted, rejected, waiting, nothing-to-do."""
        return str(self.verdict["kind"])

    @property
    def reason(self) -> str:
        """Why, in the words of the verdict."""
        return str(self.verdict["reason"])


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """One action from its intent to its measured effect; what has not happened yet is None.

    `settings` are Spark's that were to change: key → its values before and after; `judged` are the metrics
    on which that was decided. A `rollback` undoes an earlier action.
    """

    action_id: int
    application: str
    decision_id: int
    policy: str
    intended_at: float
    seen: tuple[QuerySummary, ...]
    before: Mapping[str, int]
    proposed: Mapping[str, int]
    planned: Mapping[str, int]
    exact: Mapping[str, float]
    reason: str
    notes: tuple[str, ...]
    expected: ExpectedEffect
    status: Status | None = None
    ended_at: float | None = None
    requested: Mapping[str, int] | None = None
    observed: Mapping[str, int] | None = None
    seconds: float | None = None
    detail: str = ""
    effect_at: float | None = None
    measured: Mapping[str, float] | None = None
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    judged: Mapping[str, float] = field(default_factory=dict)
    rollback: bool = False


def plain_answer(answer: Proposal | NotReady) -> Plain:
    """Return a policy's answer as plain data."""
    match answer:
        case NotReady(reason, awaiting, until):
            return {"kind": "not-ready", "reason": reason, "awaiting": awaiting, "until": until}
        case Hold(reason, figures):
            return {"kind": "hold", "reason": reason, "figures": drop_infinite(figures)}
        case Scale(parallelism, reason, expected, exact):
            scale = {"parallelism": dict(parallelism), "exact": drop_infinite(exact)}
            return {"kind": "scale", "reason": reason, **scale, "expected": plain_effect(expected)}
        case Resize(settings, reason, expected, before, seen):
            resize = {"settings": dict(settings), "expected": plain_effect(expected)}
            resize |= {"before": dict(before), "seen": drop_infinite(seen)}
            return {"kind": "resize", "reason": reason, **resize}
        case MoveState(plans, reason, expected):
            moves = [[str(one.bin), one.source, one.target] for one in answer.moves]
            move: Plain = {"moves": moves, "expected": plain_effect(expected)}
            move["plans"] = [plan.plain() for plan in plans]
            return {"kind": "move-state", "reason": reason, **move}


def plain_effect(expected: ExpectedEffect) -> Plain:
    """Return an expected effect as plain data."""
    return {"summary": expected.summary, "figures": drop_infinite(expected.figures)}


def drop_infinite(figures: Mapping[str, float]) -> dict[str, float]:
    """Drop figures that are NaN or infinite: JSON cannot hold them, and they say nothing."""
    return {name: float(value) for name, value in figures.items() if math.isfinite(value)}


def plain_verdict(verdict: Verdict) -> Plain:
    """Return a verdict as plain data."""
    plain: Plain = {"kind": verdict.kind, "reason": verdict.reason}
    match verdict:
        case Accepted(action, notes, rollback):
            accepted = {**plain, "parallelism": dict(action.planned), "notes": list(notes)}
            return {**accepted, "rollback": True} if rollback else accepted
        case Rejected(guardrail):
            return {**plain, "guardrail": guardrail}
        case Waiting(_, until):
            return {**plain, "until": until}
        case NothingToDo():
            return plain


def write_sameness(policy: str, answer: Plain, verdict: Verdict) -> str:
    """Return a text that is equal for a decision that says the same again: figures may differ, sizes not."""
    sizes = [answer.get(key) for key in ("parallelism", "settings", "moves")]
    return (
        f"{policy} | {answer['kind']} | {strip_figures(answer['reason'])} | {sizes} | {verdict_key(verdict)}"
    )


def _fill(kind: type[Kind], row: Mapping[str, Any], **read: Any) -> Kind:
    """Make a record of the columns that are called as its fields, and of what was read out of others."""
    same = {name: row[name] for name in kind.__dataclass_fields__ if name in row}
    return kind(**{**same, **read})


def _read_queries(plain: list[Plain]) -> tuple[QuerySummary, ...]:
    return tuple(QuerySummary(**one) for one in plain)


def read_observation(row: Mapping[str, Any]) -> ObservationRecord:
    """Read an observation as it was written."""
    queries, warnings = _read_queries(row["queries"]), tuple(row["warnings"])
    return _fill(ObservationRecord, row, queries=queries, warnings=warnings)


def read_outline(row: Mapping[str, Any]) -> ObservationRecord:
    """Read an observation without the details of its queries; a rate that JSON could not hold is NaN."""
    queries = [
        {key: value for key, value in one.items() if key != "detail"}
        | {key: math.nan for key in RATES if one.get(key) is None}
        for one in row["queries"]
    ]
    return read_observation({**row, "queries": queries})


def read_decision(row: Mapping[str, Any]) -> DecisionRecord:
    """Read a decision as it was written."""
    return _fill(DecisionRecord, row, decision_id=row["id"])


def _read_counts(given: Mapping[str, Any]) -> dict[str, int]:
    """Read units with their counts; a setting that is a whole number counts, too."""
    return {name: int(value) for name, value in given.items() if str(value).isdecimal()}


def _read_settings(before: Mapping[str, Any], planned: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Read settings, which are kept as texts; units are kept as numbers."""
    return {
        key: (before.get(key, ""), value)
        for key, value in planned.items()
        if isinstance(value, str) and isinstance(before.get(key, ""), str)
    }


def read_action(row: Mapping[str, Any]) -> ActionRecord:
    """Read an action joined with the decision that led to it."""
    return _fill(
        ActionRecord,
        row,
        action_id=row["id"],
        seen=_read_queries(row["seen"]),
        before=_read_counts(row["held_before"]),
        proposed=row["answer"].get("parallelism", {}),
        planned=_read_counts(row["planned"]),
        notes=tuple(row["verdict"].get("notes", ())),
        expected=ExpectedEffect(**row["expected"]),
        status=Status(row["status"]) if row["status"] else None,
        detail=row["detail"] or "",
        settings=_read_settings(row["held_before"], row["planned"]),
        judged=row["answer"].get("seen", {}),
        rollback=bool(row["verdict"].get("rollback")),
    )
