"""Events of an autopilot's cycles in plain words, for notifications and spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.dataflow.window import EXECUTORS
from penstock.decide.verdict import Accepted
from penstock.runtime.loop import Cycle
from penstock.runtime.tally import find_errors, name_change, name_verdict

DECISION, ACTION, OUTCOME, EFFECT = "decision", "action", "outcome", "effect"
ROLLBACK, HEARTBEAT, PAUSE = "rollback", "heartbeat", "pause"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, in words and as plain data."""

    kind: str
    at: float
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)


class Narrator:
    """Turns cycles into events: each action, outcome, effect and pause is told once."""

    def __init__(self) -> None:
        self._action_id: int | None = None
        self._held: dict[str, int] = {}
        self._paused: str | None = None

    def hear(self, cycle: Cycle) -> list[Event]:
        """Return what a cycle tells, in the order in which it happened."""
        told: list[Event] = []
        if cycle.outcome is not None and self._action_id is not None:
            told += [self._end(cycle)]
        if cycle.effect is not None:
            told.append(_tell_effect(cycle))
        if cycle.window is not None:
            self._held = dict(cycle.window.parallelism)
        if cycle.verdict is not None:
            told.append(self._decide(cycle))
        if cycle.action is not None and cycle.action_id != self._action_id:
            self._action_id = cycle.action_id
            told.append(self._begin(cycle))
        elif cycle.outcome is not None and not any(one.kind == OUTCOME for one in told):
            # it failed as it began
            told.append(self._end(cycle))
        if cycle.paused != self._paused:
            self._paused = cycle.paused
            text = f"paused: {cycle.paused}" if cycle.paused else "goes on after a pause"
            told.append(Event(PAUSE, cycle.at, text, {"paused": cycle.paused is not None}))
        return told

    def _decide(self, cycle: Cycle) -> Event:
        assert cycle.verdict is not None
        kind = name_verdict(cycle.verdict, self._held)
        fields: dict[str, Any] = {"decision": kind, "reason": cycle.verdict.reason}
        if guardrail := getattr(cycle.verdict, "guardrail", None):
            fields["guardrail"] = guardrail
        return Event(DECISION, cycle.at, f"{kind}: {cycle.verdict.reason}", fields)

    def _begin(self, cycle: Cycle) -> Event:
        assert cycle.action is not None
        action, rollback = cycle.action, isinstance(cycle.verdict, Accepted) and cycle.verdict.rollback
        change = name_change(self._held, action.planned)
        before, after = self._held.get(EXECUTORS), action.planned.get(EXECUTORS)
        sizes = f"{'?' if before is None else before} → {after} executors" if after is not None else ""
        if not sizes:
            sizes = ", ".join(f"{count} {unit}" for unit, count in action.planned.items())
        words = f"{'rollback, ' if rollback else ''}{change.replace('-', ' ')} {sizes}: {action.reason}"
        fields = {
            "action": cycle.action_id,
            "change": change,
            "before": dict(self._held),
            "planned": dict(action.planned),
            "reason": action.reason,
            "expected": action.expected.summary,
        }
        return Event(ROLLBACK if rollback else ACTION, cycle.at, words, fields)

    def _end(self, cycle: Cycle) -> Event:
        assert cycle.outcome is not None
        outcome, action_id = cycle.outcome, self._action_id
        self._action_id = None
        detail = f": {outcome.detail}" if outcome.detail else ""
        fields = {
            "action": action_id,
            "status": outcome.status.value,
            "planned": dict(outcome.planned),
            "observed": dict(outcome.observed),
            "seconds": outcome.seconds,
            "detail": outcome.detail,
        }
        return Event(
            OUTCOME, cycle.at, f"{outcome.status.value} after {outcome.seconds:.1f} s{detail}", fields
        )


def tell_heartbeat(at: float, hangs: str | None) -> Event:
    """Return the event of a loop that hangs, or goes on again."""
    text = hangs or "the autopilot's loop goes on"
    return Event(HEARTBEAT, at, text, {"hangs": hangs is not None})


def _tell_effect(cycle: Cycle) -> Event:
    assert cycle.effect is not None
    effect = cycle.effect
    errors = find_errors(effect.expected, effect.measured)
    compared = ", ".join(
        f"{name.replace('_', ' ')} {effect.measured[name]:.3g} against {effect.expected[name]:.3g} expected"
        for name in errors
    )
    fields = {
        "action": effect.action_id,
        "expected": dict(effect.expected),
        "measured": dict(effect.measured),
    }
    return Event(EFFECT, cycle.at, compared or "nothing was expected", {**fields, "errors": errors})
