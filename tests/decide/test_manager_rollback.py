"""The manager looks back: changes that did harm are undone, those that bring little come to an end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.decide.manager import (
    NothingToDo,
    Rejected,
)
from penstock.decide.outcome import Status
from tests.decide.manager_run import EAGER, Run, size
from tests.decide.situations import hold, scale


def test_a_scale_down_that_no_longer_keeps_up_is_rolled_back_and_not_tried_again():
    run = Run()
    run.step(hold())
    run.perform(run.step(scale(2)))
    run.step(hold(), observed=700.0)
    verdict = run.step(hold(), observed=700.0)
    assert size(verdict) == 4
    assert "does worse" in verdict.action.reason
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
    run.step(hold(), observed=800.0)
    run.perform(run.step(scale(8), observed=800.0))
    run.step(hold(), observed=600.0)
    verdict = run.step(hold(), observed=600.0)
    assert size(verdict) == 4
    run.perform(verdict)
    refused = [run.step(scale(8), observed=800.0) for _ in range(2)][-1]
    assert isinstance(refused, Rejected)
    assert refused.guardrail == "rolled-back"


def test_rollback_can_be_off():
    run = Run(replace(EAGER, rollback=False))
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
    run.step(hold(), observed=800.0)
    run.perform(run.step(scale(8), observed=800.0), Status.PARTIAL, observed=6)
    verdict = [run.step(hold(), observed=600.0) for _ in range(2)][-1]
    assert size(verdict) == 4


def test_growths_that_bring_little_come_to_an_end_until_the_load_changes():
    run = Run(replace(EAGER, small_gain_limit=2))
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
    verdict = Run(replace(EAGER, min_executors=6)).step(hold())
    assert size(verdict) == 6
    assert any("at least 6" in note for note in verdict.notes)
    assert "at least 6" in verdict.reason
