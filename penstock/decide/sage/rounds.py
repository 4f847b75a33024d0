"""One round of Sage over its rules in their priority order, at most one decision each (section 4).

The same round judges one application (`decide`), its operators each for itself (`decide_units`), and a fleet
of applications (`judge`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.decide.sage import columns
from penstock.decide.sage.columns import Applications, Bools, Decisions
from penstock.decide.sage.metrics import HeldSize, Parameter, Rule, Sizing, SizingInput, TooSmall
from penstock.decide.sage.rules import RULES, Finding, RoundView, follows_service, is_growing, view_of
from penstock.decide.sage.settings import SageSettings

UP_RULES = frozenset({Rule.HEAP_UP, Rule.MEMORY_UP, Rule.CPU_UP, Rule.PARALLELISM_UP})

PINNED, VETOED, SERVICE, NO_NEED = range(1, 5)
"""Why a rule that saw its symptom was held back; small numbers, since columns keep them."""
WHY = {
    PINNED: "its parameter is pinned",
    VETOED: "an operator has vetoed it",
    SERVICE: "the backlog follows a remote service, which more parallelism does not speed up",
    NO_NEED: "the backlog grows, yet the measured rates ask for no more parallelism",
}
AT_ONCE = 4_096
"""Applications that are judged together: their columns stay in the processor's cache."""
Needs = Sequence[Mapping[str, int]]
"""For each sample unit → the instances that DS2 asked for; empty where it did not answer."""


@dataclass(frozen=True, slots=True)
class SizingRound:
    """The outcome for one application: a decision or none, rules held back and why, or what is awaited.

    `sizes` is what each operator is to have, where operators have instances of their own.
    """

    decision: Sizing | None = None
    held_back: tuple[tuple[Rule, int], ...] = ()
    awaiting: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)


def decide(given: SizingInput, settings: SageSettings) -> SizingRound:
    """Judge one application."""
    return round_of(judge(columns.tabulate_input(given), settings), 0)


def round_of(decisions: Decisions, row: int) -> SizingRound:
    """Return one application's outcome as a value."""
    awaiting = columns.AWAITING[int(decisions.awaiting[row])]
    held_back = columns.held_back_of(int(decisions.held_back[row]))
    return SizingRound(columns.sizing_of(decisions, row), held_back, awaiting)


def judge(applications: Applications, settings: SageSettings) -> Decisions:
    """Apply the rules in order until one decides; where an action is in flight, none is applied.

    A scale-up that was wanted and held back forbids every scale-down of the round: these rely on the rules
    above them to hold. A scale-down that was held back leaves the others free, and so does a force that finds
    nothing to decide: it stands until it does, and nobody may run out of memory meanwhile.
    """
    decisions = columns.no_decisions(applications.held)
    for begin in range(0, len(applications.now), AT_ONCE):
        rows = slice(begin, begin + AT_ONCE)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            some = Decisions._make(column[rows] for column in decisions)
            _judge_some(applications.take(rows), settings, some)
    return decisions


def _judge_some(apps: Applications, settings: SageSettings, out: Decisions) -> None:
    if not apps.at.shape[1]:
        apps = _with_a_blank_sample(apps)
    _obey_forces(apps, settings, out)
    view = view_of(apps, settings)
    awake = ~apps.in_flight & (out.rule == 0)
    seen = view.recent.there | view.long.there
    out.awaiting[apps.in_flight] = columns.IN_FLIGHT
    out.awaiting[awake & ~seen] = columns.TOO_FEW
    forced_back = out.held_back.copy()
    out.held_back[:] = 0
    free = awake & seen
    for rule in RULES:
        if rule not in UP_RULES:
            free &= (out.held_back & _UP_BITS) == 0
        _apply(view, rule, free, out)
        free &= out.rule == 0
    idle = awake & seen & (out.rule == 0) & (out.held_back == 0)
    out.held_back[idle] = forced_back[idle]


_UP_BITS = (1 << columns.BITS * (int(max(UP_RULES)) + 1)) - 1
"""Where it is kept why a scale-up was held back."""


def _with_a_blank_sample(apps: Applications) -> Applications:
    """Return histories without a sample as ones with a sample that counts for nothing."""
    count, metrics = len(apps.now), apps.history.shape[1]
    return apps._replace(at=np.full((count, 1), -np.inf), history=np.full((count, metrics, 1), np.nan))


def _obey_forces(apps: Applications, settings: SageSettings, out: Decisions) -> None:
    """Obey an operator's force, which outranks vetoes and priorities; a pin outranks a force."""
    forced = np.where(apps.in_flight, 0, apps.orders[:, columns.FORCED_RULE])
    for rule in RULES:
        rows = np.flatnonzero(forced == int(rule))
        if len(rows):
            view = view_of(apps.take(rows), settings, forced=True)
            _settle(RULES[rule](view), view, rule, np.ones(len(rows), dtype=np.bool_), rows, out)


def _apply(view: RoundView, rule: Rule, free: Bools, out: Decisions) -> None:
    """Write down for the free rows what one rule decides, or why it was held back."""
    found = RULES[rule](view)
    wanted: Bools = np.logical_or.reduce([one.seen for one in found])
    if rule is Rule.PARALLELISM_UP:
        growing = is_growing(view)
        follows = growing & follows_service(view)
        _hold_back(out, rule, free & follows, SERVICE)
        _hold_back(out, rule, free & growing & ~follows & ~wanted, NO_NEED)
        free = free & ~follows
    vetoed = (view.apps.orders[:, columns.VETOED_BITS] >> int(rule) & 1) > 0
    _hold_back(out, rule, free & wanted & vetoed, VETOED)
    _settle(found, view, rule, free & ~vetoed, np.arange(len(free)), out)


def _settle(
    found: list[Finding], view: RoundView, rule: Rule, free: Bools, rows: Integers, out: Decisions
) -> None:
    """Write down the first finding whose parameter is not pinned; `rows` says where in the round."""
    pinned, left = view.apps.orders[:, columns.PINNED_BITS], free.copy()
    stopped = np.zeros(len(free), dtype=np.bool_)
    for one in found:
        barred = (pinned >> int(one.parameter) & 1) > 0
        stopped |= left & one.seen & barred
        taken = left & one.seen & ~barred
        left &= ~taken
        if taken.any():
            _write(one, view, rule, taken, rows[taken], out)
    _hold_back(out, rule, rows[left & stopped], PINNED)


def _write(one: Finding, view: RoundView, rule: Rule, taken: Bools, rows: Integers, out: Decisions) -> None:
    out.rule[rows] = int(rule)
    out.told[rows, columns.SYMPTOM] = int(one.symptom)
    out.told[rows, columns.MEASURED] = one.measured[taken]
    out.told[rows, columns.LIMIT] = one.bound[taken] if isinstance(one.bound, np.ndarray) else one.bound
    out.told[rows, columns.AFTER + columns.CHANGED[one.parameter]] = one.value[taken]
    if one.parameter is Parameter.CPU:
        out.told[rows, columns.AFTER + columns.CORES] = (view.slots * one.value)[taken]


def _hold_back(out: Decisions, rule: Rule, rows: Bools | Integers, why: int) -> None:
    out.held_back[rows] |= why << (columns.BITS * int(rule))


def keep_too_small(known: Floats, held: Floats, rule: Integers, after: Floats) -> Floats:
    """Return the sizes known to be too small after a round, one row an application.

    After an increase the size that was left is too small, so that no decrease undoes it. Nor does a decrease
    of the heap follow another: it is one safe step (section 4).
    """
    kept = known.copy()
    for grown, column, small in _GROWN:
        rows = (rule == int(grown)) & (after[:, column] > held[:, column])
        kept[rows, small] = held[rows, column]
    lowered = rule == int(Rule.HEAP_DOWN)
    kept[lowered, columns.LOWERED_HEAP] = after[lowered, columns.HEAP]
    return kept


_GROWN = (
    (Rule.HEAP_UP, columns.HEAP, columns.SMALL_HEAP),
    (Rule.MEMORY_UP, columns.OVERHEAD, columns.SMALL_OVERHEAD),
    (Rule.CPU_UP, columns.TASK_CPUS, columns.SMALL_CPUS),
)


def learn_too_small(before: TooSmall, held: HeldSize, decision: Sizing) -> TooSmall:
    """Return the sizes known to be too small after a decision for one application."""
    known = np.array([astuple(before)], dtype=np.float64)
    rule = np.array([int(decision.rule)])
    ((heap, overhead, cpus, lowered),) = keep_too_small(
        known, columns.size_row(held), rule, columns.size_row(decision.after)
    ).tolist()
    return TooSmall(heap, overhead, int(cpus), lowered)


def decide_units(
    given: SizingInput, held: Mapping[str, int], needs: Needs, settings: SageSettings
) -> SizingRound:
    """Judge an application by the need of each unit; `sizes` of the round says what each is to have.

    What waits is shared, so that units grow together: P4 gives all of them what DS2 asks for (section 4).
    P5 lowers those alone that have too many.
    """
    decisions = judge(_tabulate_units(given, held, needs), settings)
    rule = _choose_rule(decisions, given.overrides.forced)
    if rule is Rule.NONE:
        return _join_rounds([round_of(decisions, row) for row in range(len(held))])
    row = int(np.argmax(decisions.rule == int(rule)))
    first = columns.sizing_of(decisions, row)
    assert first is not None
    sizes = _find_sizes(decisions, rule, held, needs)
    after = replace(given.held, parallelism=sum(sizes.values()))
    measured, bound = first.measured, first.bound
    if rule is Rule.PARALLELISM_DOWN:
        measured, bound = float(after.parallelism), float(sum(held.values()))
    return SizingRound(Sizing(rule, first.symptom, measured, bound, after), sizes=sizes)


def _tabulate_units(given: SizingInput, held: Mapping[str, int], needs: Needs) -> Applications:
    """Return a row for each unit, with the application's metrics and the unit's need."""
    tables = []
    for unit, count in held.items():
        needed: Floats = np.array([asked.get(unit, np.nan) for asked in needs], dtype=np.float64)
        history = replace(given.history, needed_parallelism=needed)
        one = replace(given, history=history, held=replace(given.held, parallelism=count))
        tables.append(columns.tabulate_input(one))
    return Applications._make(np.concatenate(parts) for parts in zip(*tables, strict=True))


def _choose_rule(decisions: Decisions, forced: Rule) -> Rule:
    """Choose the forced rule if a unit obeys it, else the first in the order of priority."""
    decided = {Rule(int(rule)) for rule in decisions.rule} - {Rule.NONE}
    return forced if forced in decided else min(decided, default=Rule.NONE)


def _join_rounds(rounds: Sequence[SizingRound]) -> SizingRound:
    """Return why no unit changes: of a rule that several hold back, what stood in the way of a need."""
    reasons: dict[Rule, int] = {}
    for rule, why in sorted(pair for one in rounds for pair in one.held_back):
        reasons.setdefault(rule, why)
    return SizingRound(held_back=tuple(reasons.items()), awaiting=rounds[0].awaiting)


def _find_sizes(decisions: Decisions, rule: Rule, held: Mapping[str, int], needs: Needs) -> dict[str, int]:
    """Return what each unit is to have after a decision on parallelism."""
    if rule is Rule.PARALLELISM_UP:
        newest = next(asked for asked in reversed(needs) if asked)
        return {unit: newest.get(unit, count) for unit, count in held.items()}
    after = decisions.after[:, columns.PARALLELISM].tolist()
    changed = (decisions.rule == int(rule)).tolist()
    rows = zip(held.items(), after, changed, strict=True)
    return {unit: int(size) if lowered else count for (unit, count), size, lowered in rows}
