"""Sage's rules on parallelism inside the loop of one application; DS2 says how much (section 4).

Spark's status tells neither committed heap nor resident memory, so the rules on memory and CPU stay silent
here, but for GC time: where that is too high nothing is taken away.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import ExpectedEffect, Hold, Policy, Proposal, Scale
from penstock.decide.sage import WHY, SizingRound, decide
from penstock.decide.sage_metrics import (
    HeldSize,
    Overrides,
    Parameter,
    Rule,
    SizingHistory,
    SizingInput,
)
from penstock.decide.sage_settings import SageSettings
from penstock.decide.sage_words import reason_of

MOST_SAMPLES = 1_000
_UNKNOWN_BYTES = 1024.0**3
"""Stands for a heap whose size is not known; what is pinned is never changed from it."""
_PARALLELISM_ALONE = Overrides(pinned=frozenset(set(Parameter) - {Parameter.PARALLELISM}))


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    seconds: float
    gc_seconds: float
    backlog_records: float
    offered_per_second: float
    needed: Mapping[str, int] | None


class SagePolicy:
    """Grows only while the backlog does and no remote service explains it, shrinks in one safe step."""

    name = "sage"

    def __init__(
        self,
        needs: Policy,
        settings: SageSettings,
        correlation: Callable[[ApplicationWindow], float] = lambda window: math.nan,
    ) -> None:
        self._needs, self._settings, self._correlation = needs, settings, correlation
        self._samples: deque[_Sample] = deque(maxlen=MOST_SAMPLES)
        self._held: dict[str, int] = {}
        self._fresh_after = -math.inf
        self._gc_before: float | None = None

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Take the window in, and judge the samples since the last change of size."""
        answer = self._needs.propose(window)
        held = {unit: count for unit, count in window.parallelism.items() if count >= 1}
        if isinstance(answer, NotReady):
            return answer
        if not held or window.end <= window.start:
            return NotReady("nothing is held, or the window has no length", "another window")
        if held != self._held:
            # before the first window nothing is known of an earlier size
            self._fresh_after = window.start if self._held else -math.inf
            self._held = held
        self._take(window, held, answer)
        return self._judge(window, held)

    def _take(self, window: ApplicationWindow, held: Mapping[str, int], answer: Proposal) -> None:
        if self._samples and window.end <= self._samples[-1].at:
            self._samples.clear()
        sources = [source for query in window.queries for source in query.sources.values()]
        wanted = dict(held)
        if isinstance(answer, Scale):
            wanted |= {unit: size for unit, size in answer.parallelism.items() if unit in held}
        collected = max((executor.gc_seconds for executor in window.executors), default=math.nan)
        gc = collected - self._gc_before if self._gc_before is not None else 0.0
        self._gc_before = collected
        self._samples.append(
            _Sample(
                window.end,
                window.end - window.start,
                max(0.0, gc) if math.isfinite(gc) else 0.0,
                sum(source.backlog_records for source in sources),
                sum(source.offered_per_second for source in sources),
                wanted,
            )
        )

    def _judge(self, window: ApplicationWindow, held: Mapping[str, int]) -> Proposal | NotReady:
        given = SizingInput(
            now=window.end,
            history=self._history(),
            held=HeldSize(sum(held.values()), _UNKNOWN_BYTES, _UNKNOWN_BYTES),
            fresh_after=self._fresh_after,
            service_correlation=self._correlation(window),
            overrides=_PARALLELISM_ALONE,
        )
        found = decide(given, self._settings)
        if found.awaiting:
            return NotReady("the size is not judged", found.awaiting)
        sizes = self._sizes(found, held, window.end)
        if found.decision is None or sizes == dict(held):
            return Hold(_why(found))
        changes = ", ".join(f"{unit} {held[unit]} → {size}" for unit, size in sizes.items())
        reason = reason_of(given.held, found.decision)
        expected = ExpectedEffect("the backlog stops growing" if _grows(found) else "the backlog stays small")
        return Scale(sizes, f"{reason} ({changes})", expected)

    def _sizes(self, found: SizingRound, held: Mapping[str, int], now: float) -> dict[str, int]:
        """What DS2 asked for: for growth now, for a scale-down the largest of the long window."""
        if found.decision is None:
            return dict(held)
        since = max(now - self._settings.down_window_seconds, self._fresh_after)
        asked = [sample.needed for sample in self._samples if sample.at > since and sample.needed]
        if _grows(found):
            return dict(asked[-1])
        return {unit: min(held[unit], max(sizes.get(unit, 1) for sizes in asked)) for unit in held}

    def _history(self) -> SizingHistory:
        known = {
            "at": [sample.at for sample in self._samples],
            "seconds": [sample.seconds for sample in self._samples],
            "gc_seconds": [sample.gc_seconds for sample in self._samples],
            "backlog_records": [sample.backlog_records for sample in self._samples],
            "offered_per_second": [sample.offered_per_second for sample in self._samples],
            "needed_parallelism": [float(sum((s.needed or {}).values())) for s in self._samples],
        }
        empty = [math.nan] * len(self._samples)
        return SizingHistory(
            **{c.name: np.array(known.get(c.name, empty), dtype=np.float64) for c in fields(SizingHistory)}
        )


def _grows(found: SizingRound) -> bool:
    return found.decision is not None and found.decision.rule is Rule.PARALLELISM_UP


def _why(found: SizingRound) -> str:
    told = "; ".join(f"P{int(rule)} was held back: {WHY[why]}" for rule, why in found.held_back)
    return told or "no rule asks for a change"
