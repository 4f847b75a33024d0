"""Operators with instances of their own, in one round: each is a row with its own need beside what it holds.

Needs that are added up say nothing where one operator has too many instances and another too few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.decide.sage import columns
from penstock.decide.sage.columns import Applications, Decisions
from penstock.decide.sage.metrics import Rule, Sizing, SizingInput
from penstock.decide.sage.rounds import SizingRound, judge, round_of
from penstock.decide.sage.settings import SageSettings

Needs = Sequence[Mapping[str, int]]
"""For each sample unit → the instances that DS2 asked for; empty where it did not answer."""


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
