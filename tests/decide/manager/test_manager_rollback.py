"""The manager looks back: changes that did harm are undone, those that bring little come to an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.goals import SizeBounds
from penstock.decide.manager.manager import (
    Accepted,
    NothingToDo,
    Rejected,
    Waiting,
)
from penstock.decide.outcome import Status
from tests.decide.manager_run import EAGER, Run, size
from tests.decide.situations import INTERVAL, hold, scale


def test_a_scale_down_that_no_longer_keeps_up_is_rolled_back_and_not_tried_again():
    run = Run()
    run.step(hold())
    run.perform(run.step(scale(2)))
    run.step(hold(), observed=700.0)
    verdict = run.step(hold(), observed=700.0)
    assert size(verdict) == 4
    assert verdict.rollback and "does worse" in verdict.action.reason
    run.perform(verdict)
    refused = run.step(scale(2))
    assert isinstance(refused, Rejected)
    assert refused.guardrail == "rolled-back"
    # at half the load, what was learned no longer holds
    run.step(scale(2), offered=500.0)
    assert size(run.step(scale(2), offered=500.0)) == 2


def test_growth_that_has_yet_to_work_off_a_backlog_is_not_rolled_back():
    run = Run()
    run.perform(run.step(scale(8), observed=400.0, busy=2.5))
    # batches hold what waited meanwhile, so they overrun by even more, and yet more is read than is offered
    verdicts = [run.step(hold(), observed=1500.0, busy=4.0) for _ in range(3)]
    assert all(isinstance(verdict, NothingToDo) for verdict in verdicts), verdicts


def test_growth_that_costs_throughput_is_rolled_back():
    run = Run()
    run.step(hold())
    run.perform(run.step(scale(8)))
    run.step(hold(), observed=600.0)
    verdict = run.step(hold(), observed=600.0)
    assert size(verdict) == 4
    run.perform(verdict)
    refused = [run.step(scale(8), observed=800.0) for _ in range(2)][-1]
    assert isinstance(refused, Rejected)
    assert refused.guardrail == "rolled-back"


@pytest.mark.parametrize("windows", [1, 2])
def test_no_size_is_gone_back_to_at_which_the_backlog_grew(windows):
    run = Run()
    for _ in range(windows - 1):
        run.step(hold(), observed=800.0)
    run.perform(run.step(scale(8), observed=800.0))
    verdicts = [run.step(hold(), observed=650.0) for _ in range(3)]
    assert [type(verdict) for verdict in verdicts] == [NothingToDo] * 3
    # the larger size is no better, so it counts as a growth that brought little
    assert run.manager.state.small_gains == 1


def test_batches_that_overran_are_not_gone_back_to():
    run = Run()
    run.perform(run.step(scale(8), busy=1.3))
    assert [type(run.step(hold(), observed=800.0, busy=1.3)) for _ in range(3)] == [NothingToDo] * 3


def test_growth_that_lost_throughput_is_rolled_back_also_where_more_is_asked_for_at_once():
    run = Run()
    run.perform(run.step(scale(8)))
    assert isinstance(run.step(scale(12), observed=600.0), Waiting)
    verdict = run.step(scale(12), observed=600.0)
    assert size(verdict) == 4 and "does worse" in verdict.action.reason


def grow_in_vain(run, wanted=6, **load):
    """One growth from 4, and the first window after it, in which more is asked for."""
    run.perform(run.step(scale(wanted), observed=800.0))
    return run.step(scale(wanted + 2), **{"observed": 800.0, **load})


def test_a_further_growth_waits_until_the_last_one_is_judged():
    run = Run()
    waiting = grow_in_vain(run)
    assert isinstance(waiting, Waiting)
    assert "1 of 2 windows seen by which the last growth is judged" in waiting.reason
    assert waiting.until == run.now + INTERVAL
    assert size(run.step(scale(8), observed=800.0)) == 8
    assert run.manager.state.small_gains == 1


def test_growths_that_bring_little_come_to_an_end_though_each_decision_asks_for_more():
    run, sizes = Run(), []
    for wanted in range(6, 30):
        verdict = run.step(scale(wanted), observed=800.0)
        if isinstance(verdict, Accepted):
            sizes.append(size(verdict))
            run.perform(verdict)
    assert len(sizes) == 3
    assert isinstance(verdict, Rejected) and verdict.guardrail == "small-gain"


@pytest.mark.parametrize(
    "load",
    [
        {"offered": 1300.0, "observed": 800.0},  # the load has risen by three tenths
        {"observed": 850.0},  # it has helped, by more than a twentieth
        {"observed": 1000.0},  # it keeps up
    ],
)
def test_a_growth_that_is_judged_by_one_window_delays_no_other(load):
    assert size(grow_in_vain(Run(), **load)) == 8


def test_a_growth_that_helped_ends_the_row_of_those_that_brought_little():
    run = Run()
    grow_in_vain(run)
    run.perform(run.step(scale(8), observed=800.0))
    assert run.manager.state.small_gains == 1
    run.perform(run.step(scale(10), observed=900.0))
    assert run.manager.state.small_gains == 0


def test_growth_after_a_reduction_does_not_wait():
    run = Run(EAGER.change(rollback=False))
    run.perform(run.step(scale(2)))
    assert size(run.step(scale(6), observed=500.0)) == 6


def test_windows_that_never_follow_each_other_delay_a_growth_once():
    run = Run()
    assert isinstance(grow_in_vain(run), Waiting)
    run.now += 20 * INTERVAL
    assert size(run.step(scale(8), observed=800.0)) == 8


@given(loads=st.lists(st.tuples(st.floats(500, 2000), st.floats(0, 1), st.booleans()), max_size=30))
def test_no_growth_waits_for_a_judgement_twice(loads):
    run, wanted, waited = Run(EAGER.change(rollback=False)), 4, 0
    for offered, share, gap in loads:
        wanted += 1
        run.now += 20 * INTERVAL * gap
        verdict = run.step(scale(wanted), offered=offered, observed=share * offered)
        waited = waited + 1 if isinstance(verdict, Waiting) else 0
        assert waited <= 1
        if isinstance(verdict, Accepted):
            run.perform(verdict)


def test_rollback_can_be_off():
    run = Run(EAGER.change(rollback=False))
    run.step(hold())
    run.perform(run.step(scale(2)))
    verdicts = [run.step(hold(), observed=700.0) for _ in range(2)]
    assert [type(verdict) for verdict in verdicts] == [NothingToDo, NothingToDo]


@pytest.mark.parametrize(
    "after",
    [
        {"busy": 0.95},  # busier, and it keeps up: that is what a scale-down is for
        {"offered": 1500.0, "observed": 1300.0},  # the load grew meanwhile
        {"offered": 1000.0, "observed": 960.0},  # within what counts as worse
    ],
)
def test_no_rollback_where_nothing_got_worse_by_the_change(after):
    run = Run()
    run.step(hold(), busy=0.4)
    run.perform(run.step(scale(2), busy=0.4))
    assert [type(run.step(hold(), **after)) for _ in range(2)] == [NothingToDo, NothingToDo]


def test_a_drained_backlog_is_no_lost_throughput():
    run = Run()
    run.backlog = 100_000.0
    run.step(hold(), observed=2000.0)
    run.perform(run.step(scale(6), observed=2000.0))
    assert [type(run.step(hold())) for _ in range(2)] == [NothingToDo, NothingToDo]


def test_a_change_from_outside_ends_the_comparison():
    run = Run()
    run.step(hold())
    run.perform(run.step(scale(2)))
    run.held = 1
    verdicts = [run.step(hold(), observed=700.0) for _ in range(2)]
    assert [type(verdict) for verdict in verdicts] == [NothingToDo, NothingToDo]


def test_a_failed_action_is_not_rolled_back():
    run = Run()
    run.step(hold())
    run.perform(run.step(scale(2)), Status.FAILED)
    verdicts = [run.step(hold(), observed=700.0) for _ in range(2)]
    assert [type(verdict) for verdict in verdicts] == [NothingToDo, NothingToDo]


def test_a_partial_action_is_judged_by_what_it_reached():
    run = Run()
    run.step(hold())
    run.perform(run.step(scale(8)), Status.PARTIAL, observed=6)
    verdict = [run.step(hold(), observed=600.0) for _ in range(2)][-1]
    assert size(verdict) == 4


def test_growths_that_bring_little_come_to_an_end_until_the_load_changes():
    run = Run(EAGER.change(small_gain_limit=2))
    for wanted in (6, 8):
        run.step(hold(), observed=800.0)
        run.perform(run.step(scale(wanted), observed=800.0))
    run.step(scale(10), observed=800.0)
    limited = run.step(scale(10), observed=800.0)
    assert isinstance(limited, Rejected)
    assert limited.guardrail == "small-gain"
    run.step(scale(12), offered=1500.0, observed=1000.0)
    assert size(run.step(scale(12), offered=1500.0, observed=1000.0)) == 12


def test_held_outside_the_bounds_is_brought_back():
    verdict = Run(bounds=SizeBounds(least=6)).step(hold())
    assert size(verdict) == 6
    assert any("at least 6" in note for note in verdict.notes)
    assert "at least 6" in verdict.reason
