"""What is read back from the journal, and the plain form in which answers and verdicts are kept there."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.summary import QuerySummary
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect, Hold, MoveState, Proposal, Resize, Scale
from penstock.decide.verdict import Accepted, NothingToDo, Rejected, Verdict, Waiting

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ObservationRecord:
    """One observed window [start, at), reduced to what people and later reports read."""

    observation_id: int
    application: str
    at: float
    start: float
    parallelism: Mapping[str, int]
    slots: int
    queries: tuple[QuerySummary, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """What the policy answered and the manager said, `count` times in a row from first to last."""

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
    on which that was decided.
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


def plain_answer(answer: Proposal | NotReady) -> Plain:
    """A policy's answer as plain data."""
    match answer:
        case NotReady(reason, awaiting, until):
            return {"kind": "not-ready", "reason": reason, "awaiting": awaiting, "until": until}
        case Hold(reason, figures):
            return {"kind": "hold", "reason": reason, "figures": finite(figures)}
        case Scale(parallelism, reason, expected, exact):
            scale = {"parallelism": dict(parallelism), "exact": finite(exact)}
            return {"kind": "scale", "reason": reason, **scale, "expected": plain_effect(expected)}
        case Resize(settings, reason, expected, before, seen):
            resize = {"settings": dict(settings), "expected": plain_effect(expected)}
            resize |= {"before": dict(before), "seen": finite(seen)}
            return {"kind": "resize", "reason": reason, **resize}
        case MoveState(moves, reason, expected, plans):
            move: Plain = {"moves": [list(one) for one in moves], "expected": plain_effect(expected)}
            move["plans"] = [dict(plan) for plan in plans]
            return {"kind": "move-state", "reason": reason, **move}


def plain_effect(expected: ExpectedEffect) -> Plain:
    """An expected effect as plain data."""
    return {"summary": expected.summary, "figures": finite(expected.figures)}


def finite(figures: Mapping[str, float]) -> dict[str, float]:
    """Without what JSON cannot hold: a figure that is NaN or infinite says nothing."""
    return {name: float(value) for name, value in figures.items() if math.isfinite(value)}


def plain_verdict(verdict: Verdict) -> Plain:
    """A verdict as plain data."""
    match verdict:
        case Accepted(action, notes):
            accepted = {"parallelism": dict(action.planned), "notes": list(notes)}
            return {"kind": "accepted", "reason": verdict.reason, **accepted}
        case Rejected(guardrail, reason):
            return {"kind": "rejected", "reason": reason, "guardrail": guardrail}
        case Waiting(reason, until):
            return {"kind": "waiting", "reason": reason, "until": until}
        case NothingToDo(reason):
            return {"kind": "nothing-to-do", "reason": reason}


def sameness(policy: str, answer: Plain, verdict: Plain) -> str:
    """Equal for answers that say the same again; figures in a reason may differ, sizes may not."""
    sizes = [
        answer.get("parallelism"),
        answer.get("settings"),
        answer.get("moves"),
        verdict.get("parallelism"),
    ]
    words = [answer["kind"], answer["reason"], verdict["kind"], verdict.get("guardrail"), verdict["reason"]]
    without_figures = re.sub(r"\d+(?:[.,]\d+)*", "#", " | ".join(str(word) for word in words))
    return f"{policy} | {without_figures} | {sizes}"
