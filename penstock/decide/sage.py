"""Sage: one round over the rules in their priority order, at most one decision (section 4, policy engine)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.decide.sage_metrics import HeldSize, Parameter, Rule, Sizing, SizingInput, TooSmall
from penstock.decide.sage_rules import RULES, RoundView, follows_service, growing, view_of
from penstock.decide.sage_settings import SageSettings

UP_RULES = frozenset({Rule.HEAP_UP, Rule.MEMORY_UP, Rule.CPU_UP, Rule.PARALLELISM_UP})

PINNED, VETOED, SERVICE, NO_NEED = range(1, 5)
"""Why a rule that saw its symptom was held back; as small numbers, since columnar code keeps them, too."""

WHY = {
    PINNED: "its parameter is pinned",
    VETOED: "an operator has vetoed it",
    SERVICE: "the backlog follows a remote service, which more parallelism does not speed up",
    NO_NEED: "the backlog grows, yet the measured rates ask for no more parallelism",
}


@dataclass(frozen=True, slots=True)
class SizingRound:
    """What a round came to: a decision or none, rules held back and why, or why nothing could be judged."""

    decision: Sizing | None = None
    held_back: tuple[tuple[Rule, int], ...] = ()
    awaiting: str = ""


def decide(given: SizingInput, settings: SageSettings) -> SizingRound:
    """Apply the rules in order until one decides; with an action in flight, none is applied.

    A scale-up that was wanted and held back forbids every scale-down of the round: these rely on the rules
    above them to hold. A scale-down that was held back leaves the others free, and so does a force that finds
    nothing to decide: it stands until it does, and nobody may run out of memory meanwhile.
    """
    if given.action_in_flight:
        return SizingRound(awaiting="the end of the action in flight")
    view = view_of(given, settings)
    forced = _forced(replace(view, forced=True)) if given.overrides.forced else SizingRound()
    if forced.decision is not None:
        return forced
    if view.recent is None and view.long is None:
        return SizingRound(awaiting="enough samples since the last change")
    held_back: list[tuple[Rule, int]] = []
    for rule in RULES:
        if rule not in UP_RULES and any(wanted in UP_RULES for wanted, _ in held_back):
            break
        answer = _one(view, rule)
        if isinstance(answer, Sizing):
            return SizingRound(answer, tuple(held_back))
        if answer:
            held_back.append((rule, answer))
    return SizingRound(held_back=tuple(held_back) or forced.held_back)


def _one(view: RoundView, rule: Rule) -> Sizing | int:
    """The decision of one rule, or why it was held back; 0 where it has nothing to say."""
    found = RULES[rule](view)
    if rule is Rule.PARALLELISM_UP and growing(view) and follows_service(view):
        return SERVICE
    if not found:
        return NO_NEED if rule is Rule.PARALLELISM_UP and growing(view) else 0
    if rule in view.given.overrides.vetoed:
        return VETOED
    free = [one for one in found if changed(view.held, one.after) not in view.given.overrides.pinned]
    return free[0] if free else PINNED


def _forced(view: RoundView) -> SizingRound:
    """An operator's force outranks vetoes and priorities; a pin, which names a value, outranks a force."""
    rule = view.given.overrides.forced
    found = RULES[rule](view)
    free = [one for one in found if changed(view.held, one.after) not in view.given.overrides.pinned]
    if free:
        return SizingRound(free[0])
    return SizingRound(held_back=((rule, PINNED),) if found else ())


def changed(before: HeldSize, after: HeldSize) -> Parameter:
    """The one parameter in which two sizes differ."""
    if after.parallelism != before.parallelism:
        return Parameter.PARALLELISM
    if after.heap_bytes != before.heap_bytes:
        return Parameter.HEAP
    if after.overhead_bytes != before.overhead_bytes:
        return Parameter.OVERHEAD
    if after.memory_fraction != before.memory_fraction:
        return Parameter.MEMORY_FRACTION
    return Parameter.CPU if after.task_cpus != before.task_cpus else Parameter.DRIVER_HEAP


def learned(before: TooSmall, held: HeldSize, decision: Sizing) -> TooSmall:
    """After an increase the size that was left is known to be too small; so no decrease undoes it.

    Nor does a decrease of the heap follow another: it is one safe step (section 4).
    """
    parameter = changed(held, decision.after)
    if decision.rule is Rule.HEAP_UP and parameter is Parameter.HEAP:
        return replace(before, heap_bytes=held.heap_bytes)
    if decision.rule is Rule.HEAP_DOWN:
        return replace(before, lowered_heap_bytes=decision.after.heap_bytes)
    if decision.rule is Rule.MEMORY_UP:
        return replace(before, overhead_bytes=held.overhead_bytes)
    if decision.rule is Rule.CPU_UP:
        return replace(before, task_cpus=held.task_cpus)
    return before
