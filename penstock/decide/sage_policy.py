"""Sage inside the loop of one application: all rules where executors report what they use (section 4).

Where they do not, memory grows by what Spark tells itself alone: executors lost for want of it, time in GC,
the driver's heap. How much parallelism is needed is what DS2 says.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, Execution
from penstock.decide.first_size import first_size, known_size, known_sizes, most_similar, operators_of
from penstock.decide.held_size import held_from
from penstock.decide.policy import ExpectedEffect, Hold, Policy, Proposal, Resize, Scale
from penstock.decide.resizer import Host, Limits
from penstock.decide.restarts import RestartJudge
from penstock.decide.sage import SERVICE, WHY, SizingRound, decide, learned
from penstock.decide.sage_fit import Fitted, fit
from penstock.decide.sage_metrics import HeldSize, Parameter, Rule, Sizing, SizingInput, Symptom, TooSmall
from penstock.decide.sage_overrides import Said, no_word
from penstock.decide.sage_sample import GcClock, TouchedHeap, history_of, sample_of
from penstock.decide.sage_services import Correlation
from penstock.decide.sage_settings import SageSettings
from penstock.decide.sage_values import with_values
from penstock.decide.sage_words import proposal_of, reason_of, spark_settings, with_notes
from penstock.decide.units import UnitReader
from penstock.decide.verdict import Accepted
from penstock.errors import BadInput

MOST_SAMPLES = 10_000
"""More than a day of them, ten seconds apart, since a window may be as long as load takes to come again."""
MOST_STRETCHED = 10.0
"""How many times its length a window may become where samples are rare."""
_UNKNOWN_BYTES = 1024.0**3
"""Stands for a heap whose size is not known; what is pinned is never changed from it."""
_MEMORY_UP = frozenset({Rule.HEAP_UP, Rule.MEMORY_UP})
_NEW_SETTINGS_UP = _MEMORY_UP | {Rule.CPU_UP}
_FIRST_BATCH = "no batch has ended yet, so memory alone is judged"
_ALL_BUT_PARALLELISM = frozenset(set(Parameter) - {Parameter.PARALLELISM})


class SagePolicy:
    """Grows only while the backlog does and no remote service explains it, shrinks in one safe step."""

    name = "sage"
    memory_kind = "sage"

    def __init__(
        self,
        needs: Policy,
        settings: SageSettings,
        services: Callable[[ApplicationWindow], Correlation | None] = lambda window: None,
        limits: Limits | None = None,
        said: Callable[[], Said] = no_word,
        first_after: float = math.inf,
    ) -> None:
        """`services` tells the remote service that the backlog follows most closely.

        `others`, `hosts` and `restarts` tell the sizes of other applications, what hosts can give and whether
        new settings will be brought about, where set later. A first size is proposed after so many seconds.
        """
        self._needs, self._settings, self._services = needs, settings, services
        self._service: Correlation | None = None
        self._limits, self.said, self._word = limits, said, no_word()
        self._samples: deque[tuple[float, Mapping[str, float], Mapping[str, int]]] = deque(
            maxlen=MOST_SAMPLES
        )
        self._held: dict[str, int] = {}
        self._fresh_after = -math.inf
        self._gc, self._touched, self._units = GcClock(), TouchedHeap(), UnitReader()
        self._judged_by = settings
        self._too_small, self._obeyed = TooSmall(), ""
        self.others: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
        self.hosts: Callable[[ApplicationWindow], tuple[Host, ...]] = lambda window: ()
        self.restarts: RestartJudge | None = None
        self._first_after = first_after
        self._sized_before = self._proposed_first = self._seen_batches = False
        self._size: Mapping[str, Any] = {}

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Take the window in, and judge the samples since the last change of size."""
        answer = self._needs.propose(window)
        held = {unit: count for unit, count in window.parallelism.items() if count >= 1}
        if isinstance(answer, NotReady) and window.sizing is None:
            return answer
        if not held or window.end <= window.start:
            return NotReady("nothing is held, or the window has no length", "another window")
        if held != self._held and not self._has_lost(window, held):
            # before the first window nothing is known of an earlier size
            self._fresh_after = max(self._fresh_after, window.start if self._held else -math.inf)
            self._held = held
        self._take(window, held, answer)
        # asked once: an operator may say more while the window is judged
        self._word = self.said()
        self._judged_by = self._with_samples(window.end)
        try:
            return self._judge(self._given(window, held), window, held, answer)
        except BadInput as error:
            return NotReady(str(error), "settings that can be read")

    def learned(self) -> Mapping[str, Mapping[str, Any]]:
        """Sizes found too small, the last force that was obeyed, and the size that was right."""
        sized = self._sized_before or self._proposed_first or bool(self._size)
        known = {"too_small": asdict(self._too_small), "obeyed": self._obeyed, "sized": sized}
        return {"known": known, **({"size": self._size} if self._size else {})}

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up what an earlier run has learned."""
        try:
            found = known.get("known", {})
            sizes = found.get("too_small", {})
            heap, overhead, lowered = (
                float(sizes.get(f"{name}_bytes", 0)) for name in ("heap", "overhead", "lowered_heap")
            )
            self._too_small = TooSmall(heap, overhead, int(sizes.get("task_cpus", 0)), lowered)
            self._obeyed, self._sized_before = str(found.get("obeyed", "")), bool(found.get("sized", False))
            self._size = dict(known.get("size", {}))
        except (AttributeError, TypeError, ValueError) as error:
            return (f"sizes found too small cannot be read: {error}",)
        return ()

    def _has_lost(self, window: ApplicationWindow, held: Mapping[str, int]) -> bool:
        """Executors that died for want of memory are replaced: no other size, but what P1 and P2 look for."""
        lost = window.sizing is not None and window.sizing.failed_for_memory
        return lost and all(count <= self._held.get(unit, 0) for unit, count in held.items())

    def _take(self, window: ApplicationWindow, held: Mapping[str, int], answer: Proposal | NotReady) -> None:
        """Without an answer of DS2 the need is unknown, and the rest of the sample counts all the same."""
        first_has_ended = bool(window.queries) and not self._seen_batches
        went_back = bool(self._samples) and window.end <= self._samples[-1][0]
        # a first batch starts Python workers and compiles code: once it has ended nothing of it is believed
        if first_has_ended or went_back:
            self._samples.clear()
        if went_back:
            # else nothing would be believed for as long as the clock went back
            self._fresh_after = min(self._fresh_after, window.start)
        self._seen_batches = self._seen_batches or first_has_ended
        self._warm_up(window, first_has_ended)
        wanted = {} if isinstance(answer, NotReady) else dict(held)
        if isinstance(answer, Scale):
            wanted |= {unit: size for unit, size in answer.parallelism.items() if unit in held}
        needed = float(sum(wanted.values())) if wanted else math.nan
        sample = sample_of(window, self._gc, self._touched, needed)
        units = self._units.read(window) if window.execution is Execution.PER_OPERATOR else None
        if isinstance(units, tuple):
            # queues between operators may have no bound, and then nothing ever waits at the sources
            sample["backlog_records"] = sum(unit.backlog for unit in units)
        self._samples.append((window.end, sample, wanted))

    def _warm_up(self, window: ApplicationWindow, first_has_ended: bool) -> None:
        """State is read back and code still compiled after the first batch: what it costs does not last.

        Of the first batch itself only what comes late is believed: it may be one that never ends. A failure
        for want of memory is believed at any time.
        """
        facts = window.sizing
        if facts is None:
            return
        if first_has_ended:
            self._fresh_after = window.end + self._settings.up_window_seconds
        elif not self._seen_batches and not self._samples:
            self._fresh_after = window.end + self._settings.down_window_seconds
        if facts.failed_for_memory:
            self._fresh_after = min(self._fresh_after, window.start)

    def _with_samples(self, now: float) -> SageSettings:
        """Windows that hold enough samples, whatever comes between them: a batch may outlast a window."""
        settings = self._settings

        def stretched(seconds: float, samples: int) -> float:
            if len(self._samples) < samples:
                return seconds
            # a window is open at its start, so that it must begin before the first of its samples
            needed = now - self._samples[-samples][0] + 1.0
            return max(seconds, min(needed, MOST_STRETCHED * seconds))

        up = stretched(settings.up_window_seconds, settings.least_up_samples)
        down = stretched(settings.down_window_seconds, settings.least_down_samples)
        if (up, down) == (settings.up_window_seconds, settings.down_window_seconds):
            return settings
        return replace(settings, up_window_seconds=up, down_window_seconds=max(up, down))

    def _judge(
        self,
        given: SizingInput,
        window: ApplicationWindow,
        held: Mapping[str, int],
        answer: Proposal | NotReady,
    ) -> Proposal | NotReady:
        by_hand = self._set_by_hand(given, window)
        if isinstance(by_hand, Resize):
            return self._or_grow(by_hand, given, window, held)
        found = decide(given, self._judged_by)
        if isinstance(answer, NotReady) and not _is_urgent(found, window):
            return answer
        forced = found.decision is not None and found.decision.rule is given.overrides.forced
        if forced:
            self._obeyed = self._word.force_id
        if found.awaiting:
            return NotReady("the size is not judged", found.awaiting)
        if found.decision is None and window.sizing is not None:
            self._note_size(given, found, window)
            other = by_hand or self._first_size(given, window)
            if other is not None:
                return other
        wanted = self._proposed(given, found, window, held)
        return wanted if forced else self._or_grow(wanted, given, window, held)

    def _or_grow(
        self, wanted: Proposal, given: SizingInput, window: ApplicationWindow, held: Mapping[str, int]
    ) -> Proposal:
        """P4 does not wait for settings that are only recommended, or refused for now: a backlog does not."""
        if self.restarts is None or not isinstance(wanted, Resize):
            return wanted
        said = replace(given.overrides, vetoed=given.overrides.vetoed | _NEW_SETTINGS_UP, forced=Rule.NONE)
        found = decide(replace(given, overrides=said), self._judged_by)
        if not _grows(found):
            return wanted
        # asked last, and seldom: the answer is looked up in the journal
        refused = self.restarts.judge(given.now, wanted)
        if isinstance(refused, Accepted):
            return wanted
        grown = self._proposed(given, found, window, held)
        note = f"what comes before it waits, by {refused.guardrail}: {wanted.reason}"
        return with_notes(grown, (note,)) if isinstance(grown, Scale) else wanted

    def _proposed(
        self, given: SizingInput, found: SizingRound, window: ApplicationWindow, held: Mapping[str, int]
    ) -> Proposal:
        """What hosts and quotas leave of a decision."""
        fitted = self._fitted(window, given.held, found.decision)
        if found.decision is None or fitted.decision is None:
            return Hold(_why(found, fitted, self._service))
        self._too_small = learned(self._too_small, given.held, fitted.decision)
        if fitted.decision.rule in (Rule.PARALLELISM_UP, Rule.PARALLELISM_DOWN):
            return self._scale(given, replace(found, decision=fitted.decision), held, fitted)
        proposal = proposal_of(given.held, fitted.decision, given.overrides)
        if isinstance(proposal, Resize):
            proposal = replace(proposal, seen=dict(self._samples[-1][1]))
        return with_notes(proposal, fitted.notes if window.queries else (*fitted.notes, _FIRST_BATCH))

    def _given(self, window: ApplicationWindow, held: Mapping[str, int]) -> SizingInput:
        said = self._word
        overrides = said.overrides if self._heeds_force(said) else replace(said.overrides, forced=Rule.NONE)
        size = HeldSize(sum(held.values()), _UNKNOWN_BYTES, _UNKNOWN_BYTES)
        if window.sizing is not None:
            size = held_from(window.sizing.settings, window)
        else:
            overrides = replace(overrides, pinned=overrides.pinned | _ALL_BUT_PARALLELISM)
        self._service = self._services(window)
        since = window.end - self._judged_by.down_window_seconds
        looked_at = {at: sample for at, sample, _ in self._samples if at > since}
        return SizingInput(
            now=window.end,
            history=history_of(list(looked_at), list(looked_at.values())),
            held=size,
            fresh_after=self._fresh_after,
            service_correlation=self._service.coefficient if self._service is not None else math.nan,
            too_small=self._too_small,
            overrides=overrides,
        )

    def _set_by_hand(self, given: SizingInput, window: ApplicationWindow) -> Proposal | None:
        """What operators have set and is not in effect yet, in one restart; a Hold where it cannot be had."""
        after = with_values(given.held, self._word.values)
        if window.sizing is None or after == given.held:
            return None
        decision = Sizing(Rule.NONE, Symptom.FORCED, math.nan, math.nan, after)
        fitted = self._fitted(window, given.held, decision)
        by = f"set by {given.overrides.by or 'an operator'}"
        if fitted.decision is None:
            return Hold(f"{by}, and cannot be met: {'; '.join(fitted.notes)}")
        expected = ExpectedEffect("the values that an operator asked for are in effect")
        return self._resize(given.held, fitted, by, expected)

    def _resize(self, before: HeldSize, fitted: Fitted, why: str, expected: ExpectedEffect) -> Proposal:
        """Several settings in one restart, with the values before and after in the reason."""
        assert fitted.decision is not None
        changes, old = (
            spark_settings(before, fitted.decision.after),
            spark_settings(fitted.decision.after, before),
        )
        told = ", ".join(f"{key} {old[key]} → {new}" for key, new in changes.items())
        seen = dict(self._samples[-1][1])
        return with_notes(Resize(changes, f"{why}; {told}", expected, old, seen), fitted.notes)

    def _heeds_force(self, said: Said) -> bool:
        """Once each, and not right after a start: what is proposed while a manager warms up goes unheard."""
        return said.force_id != self._obeyed and len(self._samples) >= self._settings.least_up_samples

    def _fitted(self, window: ApplicationWindow, held: HeldSize, decision: Sizing | None) -> Fitted:
        # what an executor takes of a quota is known only where its settings are
        if decision is None or self._limits is None or window.sizing is None:
            return Fitted(decision)
        return fit(held, decision, replace(self._limits, hosts=self.hosts(window)))

    def _note_size(self, given: SizingInput, found: SizingRound, window: ApplicationWindow) -> None:
        """A size that no rule wants to change over the long window is worth telling others."""
        since = max(given.now - self._judged_by.down_window_seconds, self._fresh_after)
        samples = sum(at > since for at, _, _ in self._samples)
        if samples >= self._settings.least_down_samples and not found.held_back:
            self._size = known_size(given.held, window)

    def _first_size(self, given: SizingInput, window: ApplicationWindow) -> Proposal | None:
        """Of an application that no earlier run has sized, until the rules on shrinking know enough."""
        age = given.now - self._samples[0][0] if self._samples else 0.0
        if self._sized_before or not self._first_after <= age < self._settings.down_window_seconds:
            return None
        offered = sum(s.offered_per_second for query in window.queries for s in query.outside)
        similar = most_similar(
            operators_of(window), offered / given.held.parallelism, known_sizes(self.others())
        )
        found = first_size(given, given.history.within(self._fresh_after, given.now), self._settings, similar)
        if found is None:
            return None
        decision = Sizing(Rule.NONE, Symptom.NONE, math.nan, math.nan, found.after)
        fitted = self._fitted(window, given.held, decision)
        if fitted.decision is None:
            return None
        self._proposed_first = True
        expected = ExpectedEffect("what is not needed is given back, in one restart")
        return self._resize(given.held, fitted, found.reason, expected)

    def _scale(
        self, given: SizingInput, found: SizingRound, held: Mapping[str, int], fitted: Fitted
    ) -> Proposal:
        sizes = self._sizes(found, held, given.now)
        assert found.decision is not None
        if len(sizes) == 1:
            sizes = dict.fromkeys(sizes, found.decision.after.parallelism)
        if sizes == dict(held):
            return Hold(_why(found, fitted, self._service))
        changes = ", ".join(f"{unit} {held[unit]} → {count}" for unit, count in sizes.items())
        expected = ExpectedEffect("the backlog stops growing" if _grows(found) else "the backlog stays small")
        reason = f"{reason_of(given.held, found.decision, given.overrides.by)} ({changes})"
        return with_notes(Scale(sizes, reason, expected), fitted.notes)

    def _sizes(self, found: SizingRound, held: Mapping[str, int], now: float) -> dict[str, int]:
        """What DS2 asked for: for growth now, for a scale-down the largest of the long window."""
        since = max(now - self._judged_by.down_window_seconds, self._fresh_after)
        asked = [needed for at, _, needed in self._samples if at > since and needed]
        if _grows(found):
            return dict(asked[-1])
        return {unit: min(held[unit], max(sizes.get(unit, 1) for sizes in asked)) for unit in held}


def _is_urgent(found: SizingRound, window: ApplicationWindow) -> bool:
    """What cannot wait for a batch to end, which it may never do for want of memory: more, never less.

    In the first batch code is compiled and workers start, so that a busy CPU says nothing yet.
    """
    rules = _NEW_SETTINGS_UP if window.queries else _MEMORY_UP
    return found.decision is not None and found.decision.rule in rules


def _grows(found: SizingRound) -> bool:
    return found.decision is not None and found.decision.rule is Rule.PARALLELISM_UP


def _why(found: SizingRound, fitted: Fitted, service: Correlation | None) -> str:
    told = [f"P{int(rule)} was held back: {_obstacle(why, service)}" for rule, why in found.held_back]
    if fitted.notes and found.decision is not None:
        told.append(f"P{int(found.decision.rule)} cannot be met: {'; '.join(fitted.notes)}")
    return "; ".join(told) or "no rule asks for a change"


def _obstacle(why: int, service: Correlation | None) -> str:
    if why != SERVICE or service is None:
        return WHY[why]
    return f"{service.reason}, a remote service that more parallelism does not speed up"
