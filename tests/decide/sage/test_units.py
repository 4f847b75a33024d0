"""Operators with instances of their own: each is judged by its own need, by the same rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.sage.metrics import Overrides, Parameter, Rule, SizingInput
from penstock.decide.sage.rounds import NO_NEED, PINNED, SERVICE, VETOED, SizingRound, decide_units
from penstock.decide.sage.settings import SageSettings
from tests.decide.sizing import A_SIZE, Recorder

SETTINGS = SageSettings()
FIXED = Overrides(pinned=frozenset(set(Parameter) - {Parameter.PARALLELISM}))
"""Operators have no memory of their own to size."""


def judge_units(
    held: Mapping[str, int],
    needs: Sequence[Mapping[str, int]],
    grows: bool,
    overrides: Overrides = FIXED,
    correlation: float = math.nan,
) -> SizingRound:
    clock = Recorder()
    now = clock.run(len(needs), backlog_records=[1000.0 * n if grows else 10.0 for n in range(len(needs))])
    size = replace(A_SIZE, parallelism=sum(held.values()))
    asked = SizingInput(now, clock.history, size, overrides=overrides, service_correlation=correlation)
    return decide_units(asked, held, needs, SETTINGS)


HELD = {"parse": 6, "count": 4}
NEEDS = [{"parse": 2, "count": 8}] * 30


def test_the_same_instances_in_all_are_dealt_out_anew():
    found = judge_units(HELD, NEEDS, grows=True)
    assert found.decision is not None and found.decision.rule is Rule.PARALLELISM_UP
    assert found.sizes == {"parse": 2, "count": 8}


def test_where_nothing_waits_only_what_is_too_many_goes():
    found = judge_units(HELD, NEEDS, grows=False)
    assert found.decision is not None and found.decision.rule is Rule.PARALLELISM_DOWN
    assert found.sizes == {"parse": 2, "count": 4}
    assert (found.decision.measured, found.decision.bound) == (6.0, 10.0)


@pytest.mark.parametrize(
    ("said", "correlation", "why"),
    [
        (FIXED, 0.9, SERVICE),
        (replace(FIXED, vetoed=frozenset({Rule.PARALLELISM_UP})), math.nan, VETOED),
        (Overrides(pinned=frozenset(Parameter)), math.nan, PINNED),
    ],
)
def test_growth_that_is_held_back_says_why_for_those_that_need_it(said, correlation, why):
    found = judge_units(HELD, NEEDS, grows=True, overrides=said, correlation=correlation)
    assert (found.decision, found.held_back) == (None, ((Rule.PARALLELISM_UP, why),))


def test_growth_that_no_operator_needs_is_told():
    found = judge_units(HELD, [HELD] * 30, grows=True)
    assert (found.decision, found.held_back) == (None, ((Rule.PARALLELISM_UP, NO_NEED),))


def test_a_force_outranks_the_order_of_rules():
    forced = replace(FIXED, forced=Rule.PARALLELISM_DOWN)
    found = judge_units(HELD, NEEDS, grows=True, overrides=forced)
    assert found.decision is not None and found.sizes == {"parse": 2, "count": 4}


def test_too_few_samples_are_awaited():
    assert judge_units(HELD, NEEDS[:3], grows=True).awaiting


sizes = st.fixed_dictionaries({name: st.integers(1, 12) for name in "abc"})


@given(held=sizes, needs=st.lists(sizes, min_size=30, max_size=30), grows=st.booleans())
def test_each_operator_gets_what_it_would_get_alone(
    held: dict[str, int], needs: list[dict[str, int]], grows: bool
):
    """By the words of the rules: growth to the newest need, decrease to the largest, by a tenth at least."""
    found = judge_units(held, needs, grows)
    newest = needs[-1]
    most = {name: max(asked[name] for asked in needs) for name in held}
    spare = {name: most[name] for name in held if most[name] <= 0.9 * held[name]}
    if grows:
        short = any(newest[name] > held[name] for name in held)
        assert dict(found.sizes) == (newest if short else {})
        assert bool(found.held_back) is not short
    else:
        assert dict(found.sizes) == ({**held, **spare} if spare else {})
