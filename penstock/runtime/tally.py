"""Counts since the autopilot was attached: unlike the timeline they forget nothing, and they stay small."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from penstock.dataflow.window import EXECUTORS, ApplicationWindow
from penstock.decide.outcome import Outcome
from penstock.decide.policy import BINS, Resize
from penstock.decide.verdict import Accepted, Rejected, Verdict

KINDS = {"nothing-to-do": "hold", "waiting": "wait", "rejected": "rejected"}
BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Upper bounds in seconds of the classes in which the durations of actions are counted."""


def name_change(before: Mapping[str, int], planned: Mapping[str, int]) -> str:
    """Name what an action does: scale-out, scale-in or move-state."""
    if BINS in planned and EXECUTORS not in planned:
        return "move-state"
    shrinks = any(size < before[unit] for unit, size in planned.items() if unit in before)
    grows = any(size > before[unit] for unit, size in planned.items() if unit in before)
    return "scale-in" if shrinks and not grows else "scale-out"


def name_verdict(verdict: Verdict, before: Mapping[str, int]) -> str:
    """Name a verdict as the views do: by the change that it accepts, or else by its kind."""
    if not isinstance(verdict, Accepted):
        return KINDS[verdict.kind]
    action = verdict.action
    return "resize" if isinstance(action, Resize) else name_change(before, action.planned)


def find_errors(expected: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Return by how much each figure missed what was expected, as a share of that: 0.1 is ten percent off."""
    return {
        name: abs(measured[name] - value) / abs(value)
        for name, value in expected.items()
        if name in measured and value
    }


class Tally:
    """The counts of one autopilot; whoever shares it between threads holds a lock."""

    def __init__(self) -> None:
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._actions: Counter[tuple[str, str]] = Counter()
        self._durations: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: dict[str, float] = defaultdict(float)
        self._rollbacks, self._failed_cycles, self._slot_seconds = 0, 0, 0.0
        self._errors: dict[str, float] = {}
        self._restarts: dict[str, float] = {}
        self._kind = "scale-out"

    def saw(self, window: ApplicationWindow) -> None:
        """Add the slots that were held over a window."""
        self._slot_seconds += window.slots * max(0.0, window.end - window.start)

    def decided(self, verdict: Verdict, before: Mapping[str, int], by_hand: bool = False) -> None:
        """Count a verdict by its kind and, as far as there are few of them, by its reason."""
        kind, reason = name_verdict(verdict, before), ""
        if isinstance(verdict, Rejected):
            reason = verdict.guardrail
        if isinstance(verdict, Accepted):
            reason = "by-hand" if by_hand else "rollback" if verdict.rollback else "policy"
            self._kind = kind
            self._rollbacks += verdict.rollback
        self._decisions[kind, reason] += 1

    def ended(self, outcome: Outcome) -> None:
        """Count the end of the action that was accepted last, and how long it took."""
        self._actions[self._kind, outcome.status.value] += 1
        self._durations[self._kind][bisect_left(BUCKETS, outcome.seconds)] += 1
        self._seconds[self._kind] += outcome.seconds

    def measured(self, expected: Mapping[str, float], measured: Mapping[str, float]) -> None:
        """Keep by how much the effect of the last action missed what was expected of it."""
        self._errors = find_errors(expected, measured)

    def failed(self) -> None:
        """Count a cycle that ended with an error."""
        self._failed_cycles += 1

    def restarted(self, at_by_status: Mapping[str, float]) -> None:
        """Keep when restarts of this job ended last, by how they ended."""
        self._restarts = dict(at_by_status)

    def plain(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            "decisions": [
                {"kind": kind, "reason": reason, "count": count}
                for (kind, reason), count in sorted(self._decisions.items())
            ],
            "actions": [
                {"kind": kind, "status": status, "count": count}
                for (kind, status), count in sorted(self._actions.items())
            ],
            "action_seconds": [
                {"kind": kind, "up_to": list(BUCKETS), "counts": list(counts), "sum": self._seconds[kind]}
                for kind, counts in sorted(self._durations.items())
            ],
            "rollbacks": self._rollbacks,
            "failed_cycles": self._failed_cycles,
            "slot_seconds": self._slot_seconds,
            "prediction_errors": dict(self._errors),
            "restarts": dict(self._restarts),
        }
