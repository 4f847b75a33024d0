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
from penstock.dataflow.window import ApplicationWindow, OperatorWindow, SlotQuery
from penstock.decide.policy import ExpectedEffect, Hold, Policy, Proposal, Resize, Scale
from penstock.decide.readings import UnitReader
from penstock.decide.sage.first_size import (
    describe_size,
    find_first_size,
    find_most_similar,
    list_operators,
    read_sizes,
)
from penstock.decide.sage.metrics import (
    GcClock,
    HeldSize,
    Parameter,
    Rule,
    Sizing,
    SizingInput,
    Symptom,
    TooSmall,
    TouchedHeap,
    history_of,
    sample_of,
)
from penstock.decide.sage.overrides import Said
from penstock.decide.sage.resizer import Fitted, Limits, fit
from penstock.decide.sage.rounds import SERVICE, WHY, SizingRound, decide, decide_units, learn_too_small
from penstock.decide.sage.services import Correlation
from penstock.decide.sage.settings import SageSettings
from penstock.decide.sage.sizes import (
    add_notes,
    explain_decision,
    held_from,
    make_proposal,
    spark_settings,
    with_values,
)
from penstock.decide.surroundings import Surroundings
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
TimedSample = tuple[float, Mapping[str, float], Mapping[str, int]]
"""When a window ended, its metrics, and what DS2 asked for in it."""


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
        around: Surroundings | None = None,
        first_after: float = math.inf,
    ) -> None:
        """`services` tells the remote service that the backlog follows most closely.

        A first size is proposed after `first_after` seconds.
        """
        self._needs, self._settings, self._services = needs, settings, services
        self._service: Correlation | None = None
        self._limits, self._around, self._word = limits, around or Surroundings(), Said()
        self._samples: deque[TimedSample] = deque(maxlen=MOST_SAMPLES)
        self._held: dict[str, int] = {}
        self._fresh_after = -math.inf
        self._gc, self._touched, self._units = GcClock(), TouchedHeap(), UnitReader()
        self._judged_by = settings
        self._too_small, self._obeyed = TooSmall(), ""
        self._first_after = first_after
        self._sized_before = self._proposed_first = self._seen_batches = False
        self._size: Mapping[str, Any] = {}

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Take the window in, and judge the samples since the last change of size."""
        answer = self._needs.propose(window)
        if self._seen_batches and not _has_ended_batch(window) and not isinstance(answer, NotReady):
            # a backlog goes up and down with the batches: only those at their ends can be compared
            answer = NotReady("no batch has ended in the window", "the end of the one that runs")
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
        self._word = self._around.said()
        self._judged_by = self._with_samples(window.end)
        try:
            return self._judge(self._collect_input(window, held), window, held, answer)
        except BadInput as error:
            return NotReady(str(error), "settings that can be read")

    def learned(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the sizes found too small, the last force that was obeyed, and the size that was right."""
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
        """Return whether executors died for want of memory: they are replaced, and the size is the same."""
        lost = window.sizing is not None and window.sizing.failed_for_memory
        return lost and all(count <= self._held.get(unit, 0) for unit, count in held.items())

    def _take(self, window: ApplicationWindow, held: Mapping[str, int], answer: Proposal | NotReady) -> None:
        """Add a sample of the window; without an answer of DS2 its need is unknown, and the rest counts."""
        first_has_ended = _has_ended_batch(window) and not self._seen_batches
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
        units = self._units.read(window) if isinstance(window, OperatorWindow) else None
        if isinstance(units, tuple):
            # queues between operators may have no bound, and then nothing ever waits at the sources
            sample["backlog_records"] = sum(unit.backlog for unit in units)
        self._samples.append((window.end, sample, wanted))

    def _warm_up(self, window: ApplicationWindow, first_has_ended: bool) -> None:
        """Believe no sample of the warm-up: after the first batch state is read back and code compiled.

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
        """Stretch the windows until they hold enough samples: a batch may outlast a window."""
        settings = self._settings

        def stretch(seconds: float, samples: int) -> float:
            if len(self._samples) < samples:
                return seconds
            # a window is open at its start, so that it must begin before the first of its samples
            needed = now - self._samples[-samples][0] + 1.0
            return max(seconds, min(needed, MOST_STRETCHED * seconds))

        up = stretch(settings.up_window_seconds, settings.least_up_samples)
        down = stretch(settings.down_window_seconds, settings.least_down_samples)
        if (up, down) == (settings.up_window_seconds, settings.down_window_seconds):
            return settings
        return settings.model_copy(update={"up_window_seconds": up, "down_window_seconds": max(up, down)})

    def _judge(
        self,
        given: SizingInput,
        window: ApplicationWindow,
        held: Mapping[str, int],
        answer: Proposal | NotReady,
    ) -> Proposal | NotReady:
        by_hand = self._propose_by_hand(given, window)
        if isinstance(by_hand, Resize):
            return self._or_grow(by_hand, given, window, held)
        found = self._decide(given, held)
        if isinstance(answer, NotReady) and not _is_urgent(found, self._knows_batches(window)):
            return answer
        forced = found.decision is not None and found.decision.rule is given.overrides.forced
        if forced:
            self._obeyed = self._word.force_id
        if found.awaiting:
            return NotReady("the size is not judged", found.awaiting)
        if found.decision is None and window.sizing is not None:
            self._note_size(given, found, window)
            other = by_hand or self._propose_first_size(given, window)
            if other is not None:
                return other
        wanted = self._propose_round(given, found, window, held)
        return wanted if forced else self._or_grow(wanted, given, window, held)

    def _decide(self, given: SizingInput, held: Mapping[str, int]) -> SizingRound:
        """Apply the rules to the executors, or to each operator where these have instances of their own."""
        if len(held) == 1:
            return decide(given, self._judged_by)
        return decide_units(
            given, held, [needs for _, _, needs in self._list_samples(given.now)], self._judged_by
        )

    def _list_samples(self, now: float) -> list[TimedSample]:
        """List the samples of the long window."""
        since = now - self._judged_by.down_window_seconds
        return [sample for sample in self._samples if sample[0] > since]

    def _or_grow(
        self, wanted: Proposal, given: SizingInput, window: ApplicationWindow, held: Mapping[str, int]
    ) -> Proposal:
        """Propose P4 where settings are only recommended or refused for now: a backlog does not wait."""
        judge = self._around.restarts
        if judge is None or not isinstance(wanted, Resize):
            return wanted
        said = replace(given.overrides, vetoed=given.overrides.vetoed | _NEW_SETTINGS_UP, forced=Rule.NONE)
        found = decide(replace(given, overrides=said), self._judged_by)
        if not _grows(found):
            return wanted
        # asked last, and seldom: the answer is looked up in the journal
        refused = judge.judge(given.now, wanted)
        if isinstance(refused, Accepted):
            return wanted
        grown = self._propose_round(given, found, window, held)
        note = f"what comes before it waits, by {refused.guardrail}: {wanted.reason}"
        return add_notes(grown, (note,)) if isinstance(grown, Scale) else wanted

    def _propose_round(
        self, given: SizingInput, found: SizingRound, window: ApplicationWindow, held: Mapping[str, int]
    ) -> Proposal:
        """Propose what hosts and quotas leave of a decision."""
        fitted = self._fit(window, given.held, found.decision)
        if found.decision is None or fitted.decision is None:
            return Hold(_explain_hold(found, fitted, self._service))
        self._too_small = learn_too_small(self._too_small, given.held, fitted.decision)
        if fitted.decision.rule in (Rule.PARALLELISM_UP, Rule.PARALLELISM_DOWN):
            return self._scale(given, replace(found, decision=fitted.decision), held, fitted)
        proposal = make_proposal(given.held, fitted.decision, given.overrides)
        if isinstance(proposal, Resize):
            proposal = replace(proposal, seen=dict(self._samples[-1][1]))
        return add_notes(proposal, (*fitted.notes, *(() if self._knows_batches(window) else (_FIRST_BATCH,))))

    def _knows_batches(self, window: ApplicationWindow) -> bool:
        """Return whether this window has queries, and one of them has ended a batch by now."""
        return bool(window.queries) and self._seen_batches

    def _collect_input(self, window: ApplicationWindow, held: Mapping[str, int]) -> SizingInput:
        said = self._word
        overrides = said.overrides if self._heeds_force(said) else replace(said.overrides, forced=Rule.NONE)
        size = HeldSize(sum(held.values()), _UNKNOWN_BYTES, _UNKNOWN_BYTES)
        if window.sizing is not None:
            size = held_from(window.sizing.settings, window)
        else:
            overrides = replace(overrides, pinned=overrides.pinned | _ALL_BUT_PARALLELISM)
        self._service = self._services(window)
        looked_at = self._list_samples(window.end)
        return SizingInput(
            now=window.end,
            history=history_of([at for at, _, _ in looked_at], [sample for _, sample, _ in looked_at]),
            held=size,
            fresh_after=self._fresh_after,
            service_correlation=self._service.coefficient if self._service is not None else math.nan,
            too_small=self._too_small,
            overrides=overrides,
        )

    def _propose_by_hand(self, given: SizingInput, window: ApplicationWindow) -> Proposal | None:
        """Propose what operators have set and is not in effect yet; a Hold where it cannot be had."""
        after = with_values(given.held, self._word.values)
        if window.sizing is None or after == given.held:
            return None
        decision = Sizing(Rule.NONE, Symptom.FORCED, math.nan, math.nan, after)
        fitted = self._fit(window, given.held, decision)
        by = f"set by {given.overrides.by or 'an operator'}"
        if fitted.decision is None:
            return Hold(f"{by}, and cannot be met: {'; '.join(fitted.notes)}")
        expected = ExpectedEffect("the values that an operator asked for are in effect")
        return self._resize(given.held, fitted, by, expected)

    def _resize(self, before: HeldSize, fitted: Fitted, why: str, expected: ExpectedEffect) -> Proposal:
        """Propose several settings in one restart, with the values before and after in the reason."""
        assert fitted.decision is not None
        after = fitted.decision.after
        changes, old = spark_settings(before, after), spark_settings(after, before)
        told = ", ".join(f"{key} {old[key]} → {new}" for key, new in changes.items())
        seen = dict(self._samples[-1][1])
        return add_notes(Resize(changes, f"{why}; {told}", expected, old, seen), fitted.notes)

    def _heeds_force(self, said: Said) -> bool:
        """Return whether a force is heeded: once each, and not right after a start."""
        return said.force_id != self._obeyed and len(self._samples) >= self._settings.least_up_samples

    def _fit(self, window: ApplicationWindow, held: HeldSize, decision: Sizing | None) -> Fitted:
        # what an executor takes of a quota is known only where its settings are
        if decision is None or self._limits is None or window.sizing is None:
            return Fitted(decision)
        return fit(held, decision, replace(self._limits, hosts=self._around.hosts(window)))

    def _note_size(self, given: SizingInput, found: SizingRound, window: ApplicationWindow) -> None:
        """Note a size that no rule wants to change over the long window, for others like it."""
        since = max(given.now - self._judged_by.down_window_seconds, self._fresh_after)
        samples = sum(at > since for at, _, _ in self._samples)
        if samples >= self._settings.least_down_samples and not found.held_back:
            self._size = describe_size(given.held, window)

    def _propose_first_size(self, given: SizingInput, window: ApplicationWindow) -> Proposal | None:
        """Propose a first size where no earlier run found one, until the rules on shrinking know enough."""
        age = given.now - self._samples[0][0] if self._samples else 0.0
        if self._sized_before or not self._first_after <= age < self._settings.down_window_seconds:
            return None
        offered = sum(s.offered_per_second for query in window.queries for s in query.sources.values())
        similar = find_most_similar(
            list_operators(window), offered / given.held.parallelism, read_sizes(self._around.others())
        )
        found = find_first_size(
            given, given.history.within(self._fresh_after, given.now), self._settings, similar
        )
        if found is None:
            return None
        decision = Sizing(Rule.NONE, Symptom.NONE, math.nan, math.nan, found.after)
        fitted = self._fit(window, given.held, decision)
        if fitted.decision is None:
            return None
        self._proposed_first = True
        expected = ExpectedEffect("what is not needed is given back, in one restart")
        return self._resize(given.held, fitted, found.reason, expected)

    def _scale(
        self, given: SizingInput, found: SizingRound, held: Mapping[str, int], fitted: Fitted
    ) -> Proposal:
        assert found.decision is not None
        sizes = found.sizes or dict.fromkeys(held, found.decision.after.parallelism)
        changed = {unit: count for unit, count in sizes.items() if count != held[unit]}
        if not changed:
            return Hold(_explain_hold(found, fitted, self._service))
        changes = ", ".join(f"{unit} {held[unit]} → {count}" for unit, count in changed.items())
        expected = ExpectedEffect("the backlog stops growing" if _grows(found) else "the backlog stays small")
        reason = explain_decision(given.held, found.decision, given.overrides.by, changes)
        return add_notes(Scale(sizes, reason, expected), fitted.notes)


def _has_ended_batch(window: ApplicationWindow) -> bool:
    """Return whether a query has ended a batch, where a first one may be seen while it runs."""
    return any(
        not isinstance(query, SlotQuery) or bool(query.batches) or query.running is None
        for query in window.queries
    )


def _is_urgent(found: SizingRound, knows_batches: bool) -> bool:
    """Return whether a decision cannot wait for a batch to end, which it may never do for want of memory.

    In the first batch code is compiled and workers start, so that a busy CPU says nothing yet.
    """
    rules = _NEW_SETTINGS_UP if knows_batches else _MEMORY_UP
    return found.decision is not None and found.decision.rule in rules


def _grows(found: SizingRound) -> bool:
    return found.decision is not None and found.decision.rule is Rule.PARALLELISM_UP


def _explain_hold(found: SizingRound, fitted: Fitted, service: Correlation | None) -> str:
    told = [f"P{int(rule)} was held back: {_explain_obstacle(why, service)}" for rule, why in found.held_back]
    if fitted.notes and found.decision is not None:
        told.append(f"P{int(found.decision.rule)} cannot be met: {'; '.join(fitted.notes)}")
    return "; ".join(told) or "no rule asks for a change"


def _explain_obstacle(why: int, service: Correlation | None) -> str:
    if why != SERVICE or service is None:
        return WHY[why]
    return f"{service.reason}, a remote service that more parallelism does not speed up"
