"""The recent past of an application, in memory for whoever watches: bounded, and safe to read meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.summary import QuerySummary, summarise
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.outcome import Outcome
from penstock.decide.policy import Hold, Proposal, Scale
from penstock.decide.verdict import Accepted, NothingToDo, Rejected, Verdict

KINDS: Mapping[type, str] = {Accepted: "accepted", Rejected: "rejected", NothingToDo: "nothing-to-do"}


@dataclass(frozen=True, slots=True)
class Point:
    """What was seen at one moment, and what was said to be needed.

    `needed` is the un-rounded size per unit, where the policy gave one; `figures` are the policy's own.
    """

    at: float
    parallelism: Mapping[str, int]
    slots: int
    queries: tuple[QuerySummary, ...]
    needed: Mapping[str, float] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decided:
    """A verdict, `count` times in a row until `at`; `parallelism` is the size of an accepted action."""

    at: float
    kind: str
    reason: str
    parallelism: Mapping[str, int] | None = None
    count: int = 1
    expected: str = ""

    def says_the_same(self, other: Decided) -> bool:
        """Whether only the time and how often differ."""
        return self._told() == other._told()

    def _told(self) -> tuple[str, str, Mapping[str, int] | None, str]:
        return self.kind, self.reason, self.parallelism, self.expected


@dataclass(frozen=True, slots=True)
class Ended:
    """An action's outcome."""

    at: float
    outcome: Outcome


class Timeline:
    """Written by the loop's thread, read by any; with a length of 0 it keeps nothing and costs nothing."""

    def __init__(self, length: int = 500) -> None:
        self._points: deque[Point] = deque(maxlen=length)
        self._decisions: deque[Decided] = deque(maxlen=length)
        self._outcomes: deque[Ended] = deque(maxlen=length)
        self._lock = threading.Lock()

    @property
    def points(self) -> tuple[Point, ...]:
        """What was seen, oldest first."""
        with self._lock:
            return tuple(self._points)

    @property
    def decisions(self) -> tuple[Decided, ...]:
        """What was decided, oldest first, repetitions merged."""
        with self._lock:
            return tuple(self._decisions)

    @property
    def outcomes(self) -> tuple[Ended, ...]:
        """How actions ended, oldest first."""
        with self._lock:
            return tuple(self._outcomes)

    def saw(self, now: float, window: ApplicationWindow, answer: Proposal | NotReady | None) -> None:
        """Add a point; a window in which nothing was proposed has no answer."""
        if self._points.maxlen == 0:
            return
        needed = answer.exact if isinstance(answer, Scale) else {}
        queries = tuple(summarise(query) for query in window.queries)
        point = Point(now, dict(window.parallelism), window.slots, queries, needed, _figures(answer))
        with self._lock:
            self._points.append(point)

    def decided(self, now: float, verdict: Verdict) -> None:
        """Add a verdict, or count the last one again if this one says the same."""
        if self._decisions.maxlen == 0:
            return
        kind = KINDS.get(type(verdict), "waiting")
        size = verdict.action.planned if isinstance(verdict, Accepted) else None
        expected = verdict.action.expected.summary if isinstance(verdict, Accepted) else ""
        decided = Decided(now, kind, verdict.reason, size, expected=expected)
        with self._lock:
            last = self._decisions[-1] if self._decisions else None
            if last and last.says_the_same(decided):
                self._decisions[-1] = replace(decided, count=last.count + 1)
            else:
                self._decisions.append(decided)

    def ended(self, now: float, outcome: Outcome) -> None:
        """Add an outcome."""
        with self._lock:
            self._outcomes.append(Ended(now, outcome))


def _figures(answer: Proposal | NotReady | None) -> Mapping[str, float]:
    if isinstance(answer, Hold):
        return answer.figures
    return answer.expected.figures if isinstance(answer, Scale) else {}
