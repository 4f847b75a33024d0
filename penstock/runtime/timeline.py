"""The recent past of an application, in memory for whoever watches: bounded, and safe to read meanwhile."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.dataflow.costs.foresight import Outlook
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.summary import QuerySummary, summarise
from penstock.dataflow.window import EXECUTORS, ApplicationWindow
from penstock.decide.outcome import Outcome
from penstock.decide.policy import Hold, Proposal, Scale
from penstock.decide.verdict import CountedVerdict, Verdict, VerdictLog
from penstock.runtime.tally import Tally


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """One moment: the figures seen, and the size said to be needed.

    `needed` is the un-rounded size per unit, where the policy gave one; `figures` are the policy's own.
    """

    at: float
    parallelism: Mapping[str, int]
    slots: int
    queries: tuple[QuerySummary, ...]
    needed: Mapping[str, float] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def executors(self) -> int:
        """The executors held; none where only other units are counted."""
        return self.parallelism.get(EXECUTORS, 0)


@dataclass(frozen=True, slots=True)
class EndedAction:
    """An action's outcome."""

    at: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Usage:
    """The slots and executors held since the autopilot came: in all, at first, and at most."""

    seconds: float = 0.0
    slot_seconds: float = 0.0
    slots_at_start: int = 0
    slots_at_peak: int = 0
    executor_seconds: float = 0.0
    executors_at_start: int = 0
    executors_at_peak: int = 0

    def add(self, seconds: float, slots: int, executors: int) -> Usage:
        """Return the usage after this size was held for so long; time that went back is none."""
        lasted = max(0.0, seconds)
        return Usage(
            self.seconds + lasted,
            self.slot_seconds + lasted * slots,
            self.slots_at_start or slots,
            max(self.slots_at_peak, slots),
            self.executor_seconds + lasted * executors,
            self.executors_at_start or executors,
            max(self.executors_at_peak, executors),
        )


class RecentTimeline:
    """Written by the loop's thread, read by any; with a length of 0 it keeps nothing and costs nothing."""

    def __init__(self, length: int = 500) -> None:
        self._points: deque[TimelinePoint] = deque(maxlen=length)
        self._verdicts = VerdictLog(length)
        self._outcomes: deque[EndedAction] = deque(maxlen=length)
        self._tally = Tally()
        self._lock = threading.Lock()
        self._name, self._changes = secrets.token_hex(4), 0
        self.usage = Usage()
        self.outlooks: tuple[Outlook, ...] = ()
        """The basis for foreseeing other sizes, from the last proposal that rests on fitted costs."""

    @property
    def version(self) -> str:
        """A text that changes with every change, and that no other timeline has."""
        return f"{self._name}.{self._changes}"

    @property
    def points(self) -> tuple[TimelinePoint, ...]:
        """Windows that were seen, oldest first."""
        with self._lock:
            return tuple(self._points)

    @property
    def decisions(self) -> tuple[CountedVerdict, ...]:
        """Verdicts, oldest first, repetitions counted."""
        with self._lock:
            return tuple(self._verdicts)

    @property
    def outcomes(self) -> tuple[EndedAction, ...]:
        """How actions ended, oldest first."""
        with self._lock:
            return tuple(self._outcomes)

    @property
    def totals(self) -> dict[str, Any]:
        """Counts since the start, as plain data."""
        with self._lock:
            return self._tally.plain()

    def saw(self, now: float, window: ApplicationWindow, answer: Proposal | NotReady | None) -> None:
        """Add a point; a window in which nothing was proposed has no answer."""
        if self._points.maxlen == 0:
            return
        needed = answer.exact if isinstance(answer, Scale) else {}
        queries = tuple(summarise(query) for query in window.queries)
        point = TimelinePoint(now, dict(window.parallelism), window.slots, queries, needed, _figures(answer))
        with self._lock:
            before = self._points[-1] if self._points else point
            held = self.usage.add(now - before.at, before.slots, before.executors)
            self.usage = held.add(0.0, point.slots, point.executors)
            self._points.append(point)
            self.outlooks = answer.outlooks if isinstance(answer, Hold | Scale) else self.outlooks
            self._changes += 1
            self._tally.saw(window)

    def decided(self, now: float, verdict: Verdict, by_hand: bool = False) -> None:
        """Add a verdict, or count the last one again if this one says the same."""
        if self._points.maxlen == 0:
            return
        with self._lock:
            self._verdicts.add(now, verdict)
            self._changes += 1
            self._tally.decided(verdict, self._points[-1].parallelism if self._points else {}, by_hand)

    def ended(self, now: float, outcome: Outcome) -> None:
        """Add an outcome."""
        with self._lock:
            self._outcomes.append(EndedAction(now, outcome))
            self._verdicts.close_last()
            self._changes += 1
            self._tally.ended(outcome)

    def measured(self, expected: Mapping[str, float], measured: Mapping[str, float]) -> None:
        """Compare the effect of the last action with what was expected of it."""
        with self._lock:
            self._tally.measured(expected, measured)

    def failed(self) -> None:
        """Count a cycle that ended with an error."""
        with self._lock:
            self._tally.failed()

    def restarted(self, at_by_status: Mapping[str, float]) -> None:
        """Keep when restarts ended last, by how they ended."""
        with self._lock:
            self._tally.restarted(at_by_status)


def _figures(answer: Proposal | NotReady | None) -> Mapping[str, float]:
    if isinstance(answer, Hold):
        return answer.figures
    return answer.expected.figures if isinstance(answer, Scale) else {}
