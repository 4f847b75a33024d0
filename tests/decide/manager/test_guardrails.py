"""Each guardrail by itself: what it lets pass, what it limits, what it rejects and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.window import EXECUTORS
from penstock.decide.manager.guardrails import (
    Bounds,
    KeepUpFirst,
    LargestStepDown,
    LargestStepUp,
    Limited,
    MinorChanges,
    NotAgain,
    ScaleDownDelay,
    SmallGains,
    UtilisationBand,
)
from penstock.decide.manager.history import Refused
from penstock.decide.policy import HELD_UTILISATION, IDLE_SECONDS, SEEN_EXECUTORS, Scale
from penstock.decide.verdict import Rejected
from tests.decide.situations import decisions, scale, situation

SIZES = st.integers(min_value=1, max_value=500)
BAND = UtilisationBand(0.6, aimed_at=0.8)


def size_of(opinion) -> int | str:
    """The size that is left, or the name of the guardrail that rejected."""
    if isinstance(opinion, Rejected):
        return opinion.guardrail
    change = opinion.scale if isinstance(opinion, Limited) else opinion
    return change.parallelism[EXECUTORS]


@pytest.mark.parametrize(
    ("utilisation", "behind", "left"),
    [
        (0.59, False, 3),
        (0.6, False, "utilisation-band"),
        (0.99, False, "utilisation-band"),
        (1.0, False, 3),
        (0.8, True, 3),
        (float("nan"), False, 3),
        (None, False, 3),
    ],
)
def test_band_keeps_a_size_that_is_used_well(utilisation, behind, left):
    assert size_of(BAND.apply(scale(3, utilisation=utilisation), situation(4, behind=behind))) == left


def test_band_reads_the_unrounded_need_where_there_is_no_figure():
    # 4.2 executors leave a headroom of a fifth, so what is held would be used by 4.2 · 0.8 / 4 = 0.84
    kept = BAND.apply(scale(5, exact={EXECUTORS: 4.2}), situation(4))
    assert isinstance(kept, Rejected)
    assert "0.84" in kept.reason
    # 5.2 · 0.8 / 4 = 1.04: what is held would not do
    assert size_of(BAND.apply(scale(6, exact={EXECUTORS: 5.2}), situation(4))) == 6


@pytest.mark.parametrize(
    ("proposed", "now", "then", "left"),
    [
        (3, 0.7, 0.7, 3),
        (3, 0.7, 0.76, 3),
        (3, 0.7, 0.65, 3),
        (3, 0.7, 0.78, "utilisation-band"),
        (3, 0.7, float("nan"), "utilisation-band"),
        (5, 0.7, 0.7, "utilisation-band"),
    ],
)
def test_band_lets_go_of_what_shortens_no_batch(proposed, now, then, left):
    # slots without tasks: the batch takes its 0.7 of the period with and without them, or hardly more, as
    # where eight tasks are two waves on six slots and on four
    assert size_of(BAND.apply(scale(proposed, utilisation=now, then=then), situation(4))) == left


def test_band_works_unit_by_unit():
    change = scale({"map": 5, "write": 1}, exact={"map": 4.2, "write": 0.5})
    opinion = BAND.apply(change, situation({"map": 4, "write": 4}))
    assert isinstance(opinion, Limited)
    assert opinion.scale.parallelism == {"map": 4, "write": 1}


def test_nothing_shrinks_while_falling_behind():
    assert size_of(KeepUpFirst().apply(scale(3), situation(4, behind=True))) == "falling-behind"
    assert size_of(KeepUpFirst().apply(scale(5), situation(4, behind=True))) == 5
    assert size_of(KeepUpFirst().apply(scale(3), situation(4))) == 3


def test_one_unit_may_shrink_while_another_grows_against_the_backlog():
    change = scale({"map": 6, "write": 1})
    assert KeepUpFirst().apply(change, situation({"map": 4, "write": 2}, behind=True)) is change


@pytest.mark.parametrize(
    ("size", "instead_of", "proposed", "left"),
    [
        (8, 4, 8, "rolled-back"),
        (8, 4, 9, "rolled-back"),
        (8, 4, 7, 7),
        (8, 4, 3, 3),
        (2, 4, 2, "rolled-back"),
        (2, 4, 1, "rolled-back"),
        (2, 4, 3, 3),
        (2, 4, 6, 6),
    ],
)
def test_a_size_that_did_worse_is_not_tried_again(size, instead_of, proposed, left):
    refused = Refused({EXECUTORS: size}, {EXECUTORS: instead_of}, offered=1000.0)
    assert size_of(NotAgain().apply(scale(proposed), situation(4, refused=refused))) == left


def test_growth_stops_after_some_that_brought_little():
    assert size_of(SmallGains(3).apply(scale(6), situation(4, small_gains=2))) == 6
    assert size_of(SmallGains(3).apply(scale(6), situation(4, small_gains=3))) == "small-gain"
    assert size_of(SmallGains(3).apply(scale(2), situation(4, small_gains=3))) == 2


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ([(40, 2), (70, 2), (100, 2)], 2),
        ([(40, 2), (70, 3), (100, 2)], 3),
        ([(30, 3), (39, 2), (70, 2), (100, 2)], 2),
        ([(41, 2), (70, 2), (100, 2)], "scale-down-delay"),
        ([(30, 2), (70, 4), (100, 2)], "scale-down-delay"),
        ([(30, 2), (70, 9), (100, 2)], "scale-down-delay"),
        ([], "scale-down-delay"),
    ],
)
def test_a_smaller_size_must_be_asked_for_all_the_time(asked, left):
    opinion = ScaleDownDelay(60.0).apply(scale(2), situation(4, now=100.0, decisions=decisions(*asked)))
    assert size_of(opinion) == left


def test_growth_is_not_delayed():
    assert size_of(ScaleDownDelay(60.0).apply(scale(6), situation(4))) == 6


@pytest.mark.parametrize(
    ("proposed", "behind", "left"),
    [
        (5, False, "minor-change"),
        (6, False, 6),
        (3, False, "minor-change"),
        (2, False, 2),
        (5, True, 5),
        (3, True, "minor-change"),
    ],
)
def test_minor_changes_are_ignored_unless_growth_is_needed(proposed, behind, left):
    assert size_of(MinorChanges(2).apply(scale(proposed), situation(4, behind=behind))) == left


def test_below_one_ignores_nothing():
    assert size_of(MinorChanges(1).apply(scale(5), situation(4))) == 5


@pytest.mark.parametrize(
    ("held", "fraction", "proposed", "left"),
    [
        (10, 0.5, 1, 5),
        (9, 0.5, 1, 5),
        (10, 0.5, 6, 6),
        (2, 0.1, 1, 1),
        (10, 0.1, 1, 9),
        (10, 0.5, 20, 20),
        (10, 1.0, 1, 1),
    ],
)
def test_one_step_down_is_not_too_large(held, fraction, proposed, left):
    assert size_of(LargestStepDown(fraction).apply(scale(proposed), situation(held))) == left


@given(SIZES, SIZES, st.floats(min_value=0.01, max_value=1.0))
def test_a_step_down_gives_up_one_or_at_most_the_fraction(held, proposed, fraction):
    left = size_of(LargestStepDown(fraction).apply(scale(proposed), situation(held)))
    assert held - left <= max(1, held * fraction)
    assert left >= proposed or left == held - 1
    assert left == proposed or left < held


@pytest.mark.parametrize(
    ("held", "proposed", "left"),
    [(4, 9, 8), (8, 9, "bounds"), (4, 1, 2), (2, 1, "bounds"), (4, 5, 5), (1, 1, 2), (9, 9, 8)],
)
def test_bounds_have_the_last_word(held, proposed, left):
    assert size_of(Bounds(2, 8).apply(scale(proposed), situation(held))) == left


@given(SIZES, SIZES, SIZES, SIZES)
def test_bounds_are_always_respected(held, proposed, one, other):
    least, most = sorted((one, other))
    opinion = Bounds(least, most).apply(scale(proposed), situation(held))
    assert isinstance(opinion, Rejected) or least <= size_of(opinion) <= most


def test_a_limited_change_keeps_its_reason_and_says_what_was_limited():
    opinion = Bounds(1, 8).apply(scale(20, utilisation=1.4), situation(4))
    assert isinstance(opinion, Limited)
    assert isinstance(opinion.scale, Scale)
    assert opinion.scale.reason == "the load asks for it"
    assert "at most 8" in opinion.note
    assert "executors 20 became executors 8" in opinion.note


def test_figures_predicted_for_another_size_are_dropped():
    change = scale(20, utilisation=1.4)
    change = Scale(change.parallelism, change.reason, change.expected, {EXECUTORS: 19.5})
    change.expected.figures["batch_seconds"] = 7.5
    opinion = Bounds(1, 8).apply(change, situation(4))
    assert isinstance(opinion, Limited)
    assert dict(opinion.scale.expected.figures) == {HELD_UTILISATION: 1.4}


def test_units_that_nothing_objects_to_go_on():
    opinion = MinorChanges(2).apply(scale({"map": 5, "write": 9}), situation({"map": 4, "write": 4}))
    assert isinstance(opinion, Limited)
    assert opinion.scale.parallelism == {"map": 4, "write": 9}


def test_many_units_are_named_briefly():
    held = {f"operator{number}": 4 for number in range(100)}
    opinion = Bounds(1, 4).apply(scale(dict.fromkeys(held, 9)), situation(held))
    assert isinstance(opinion, Rejected)
    assert "and 96 more" in opinion.reason


@pytest.mark.parametrize(
    ("held", "wanted", "left"), [(1, 9, 3), (2, 6, 6), (4, 134, 12), (4, 5, 5), (4, 2, 2)]
)
def test_one_step_up_is_bounded(held, wanted, left):
    needs = decisions((90.0, wanted), (100.0, wanted))
    assert size_of(LargestStepUp(3).apply(scale(wanted), situation(held, decisions=needs))) == left


def test_a_small_factor_still_lets_one_executor_come():
    needs = decisions((90.0, 9), (100.0, 9))
    assert size_of(LargestStepUp(1.1).apply(scale(9), situation(2, decisions=needs))) == 3


@pytest.mark.parametrize(
    ("seen", "needs", "left"),
    [
        (4, (12,), 8),
        (4, (4, 12), 8),
        (4, (5, 12), 5),
        (4, (12, 10), 10),
        (4, (12, 12), 12),
        (20, (12,), 12),
        (20, (5, 12), 12),
    ],
)
def test_beyond_the_sizes_seen_growth_goes_as_far_as_decisions_agree(seen, needs, left):
    """Cold batches asked for 24 executors, a window later for eight, and twelve were ordered."""
    asked = decisions(*((90.0 + number, need) for number, need in enumerate(needs)))
    change = scale(12)
    told = replace(change, expected=replace(change.expected, figures={SEEN_EXECUTORS: float(seen)}))
    assert size_of(LargestStepUp(4).apply(told, situation(4, decisions=asked))) == left


def test_instances_of_operators_grow_in_one_step():
    change = scale({"map": 40})
    assert LargestStepUp(3).apply(change, situation({"read": 1, "map": 1, "write": 1})) is change


def idle(size: int, seconds: float) -> Scale:
    change = scale(size)
    return replace(change, expected=replace(change.expected, figures={IDLE_SECONDS: seconds}))


def test_without_any_input_all_is_given_up_at_once_after_the_delay():
    held = situation(8, decisions=decisions((100.0, 8)))
    assert size_of(ScaleDownDelay(60).apply(idle(1, 60.0), held)) == 1
    assert size_of(ScaleDownDelay(60).apply(idle(1, 59.0), held)) == "scale-down-delay"
    assert size_of(LargestStepDown(0.5).apply(idle(1, 60.0), held)) == 1
    assert size_of(LargestStepDown(0.5).apply(scale(1), held)) == 4
