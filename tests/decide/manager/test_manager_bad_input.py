"""The manager and what it must not believe: clocks, windows, proposals; its log, its restart, its bounds."""

from __future__ import annotations

import logging

import pytest

from penstock.dataflow.window import EXECUTORS
from penstock.decide.goals import SizeBounds
from penstock.decide.manager.manager import Accepted, Rejected, ScalingManager, Waiting
from penstock.decide.policy import ExpectedEffect, MoveState, Resize
from tests.decide.manager_run import EAGER, Run, size
from tests.decide.situations import INTERVAL, hold, scale, window


def test_a_clock_that_goes_back_makes_it_measure_anew():
    run = Run(EAGER.change(warm_up_intervals=1))
    run.step(hold())
    run.now -= 3600
    verdict = run.step(scale(6))
    assert isinstance(verdict, Waiting)
    assert "clock went back by 3590 s" in verdict.reason
    assert isinstance(run.step(scale(6)), Waiting)
    assert size(run.step(scale(6))) == 6


def test_a_window_from_before_the_last_action_is_not_judged():
    run = Run()
    run.perform(run.step(scale(6)))
    old = window(run.now, 6)
    verdict = run.manager.judge(run.now + 1, old, scale(8))
    assert verdict == Waiting("the window began before the last change", run.now + INTERVAL)


def test_the_same_window_is_not_judged_twice():
    run = Run()
    run.step(hold())
    for end in (run.now, run.now - 1):
        verdict = run.manager.judge(run.now + 1, window(end), scale(8))
        assert isinstance(verdict, Waiting)
        assert "no newer window" in verdict.reason


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({EXECUTORS: float("nan")}, "nan is not a size"),
        ({EXECUTORS: float("inf")}, "inf is not a size"),
        ({EXECUTORS: 0}, "0 is not a size"),
        ({EXECUTORS: -3}, "-3 is not a size"),
        ({EXECUTORS: 2.5}, "2.5 is not a size"),
        ({"mystery": 3}, "'mystery' is not a unit"),
        ({}, "nothing"),
    ],
)
def test_proposals_that_make_no_sense_are_rejected(sizes, says):
    verdict = Run().step(scale(sizes))
    assert isinstance(verdict, Rejected)
    assert verdict.guardrail == "bad-proposal"
    assert says in verdict.reason


def test_a_need_that_is_no_number_is_rejected():
    verdict = Run().step(scale(6, exact={EXECUTORS: float("nan")}))
    assert isinstance(verdict, Rejected)
    assert "the need of 'executors' is nan" in verdict.reason


def test_rates_that_are_no_numbers_harm_nothing():
    run = Run()
    verdicts = [run.step(scale(6), offered=float("nan"), observed=1.0) for _ in range(2)]
    assert [size(verdict) for verdict in verdicts] == [6, 6]


@pytest.mark.parametrize(
    ("proposal", "why"),
    [
        (
            Resize({"spark.executor.memory": "4g"}, "the heap is full", ExpectedEffect("")),
            "nothing here restarts",
        ),
        (MoveState((), "the heap is full", ExpectedEffect("")), "not by policies"),
    ],
)
def test_what_nobody_here_performs_is_rejected_plainly(proposal, why):
    verdict = Run().step(proposal)
    assert isinstance(verdict, Rejected)
    assert verdict.guardrail == "unsupported"
    assert why in verdict.reason
    assert "the heap is full" in verdict.reason


def test_every_rejection_is_logged_with_its_reason(caplog):
    caplog.set_level(logging.INFO, logger="penstock.decide.manager.manager")
    verdict = Run(bounds=SizeBounds(most=4)).step(scale(9))
    assert isinstance(verdict, Rejected)
    assert [record.getMessage() for record in caplog.records] == [
        f"app: rejected by bounds: {verdict.reason}"
    ]


def test_what_is_not_rejected_is_not_logged_as_such(caplog):
    caplog.set_level(logging.INFO, logger="penstock.decide.manager.manager")
    run = Run()
    run.step(hold())
    run.step(scale(6))
    assert not caplog.records


def test_many_units_are_judged_each_by_itself():
    held = {f"operator{number}": 4 for number in range(200)}
    wanted = {**held, "operator7": 9, "operator8": 3}
    run = Run(EAGER.change(ignore_changes_below=2), held=held)
    verdict = run.step(scale(wanted))
    assert isinstance(verdict, Accepted)
    assert verdict.action.parallelism == {**held, "operator7": 9}


def test_a_proposal_may_name_only_the_units_that_change():
    verdict = Run(held={"map": 4, "write": 2}).step(scale({"map": 6}))
    assert isinstance(verdict, Accepted)
    assert verdict.action.parallelism == {"map": 6, "write": 2}


def test_after_a_restart_the_last_actions_warm_up_still_counts():
    manager = ScalingManager(EAGER.change(warm_up_intervals=2))
    manager.restore(1000.0)
    assert isinstance(manager.judge(1010.0, window(1010.0), scale(6)), Waiting)
    assert isinstance(manager.judge(1020.0, window(1020.0), scale(6)), Waiting)
    assert size(manager.judge(1030.0, window(1030.0), scale(6))) == 6


def test_after_a_restart_without_actions_it_starts_afresh():
    manager = ScalingManager(EAGER)
    manager.restore(None)
    assert size(manager.judge(1010.0, window(1010.0), scale(6))) == 6


def test_an_action_from_the_future_does_not_block_for_ever():
    manager = ScalingManager(EAGER)
    manager.restore(9000.0)
    assert isinstance(manager.judge(1010.0, window(1010.0), scale(6)), Waiting)
    assert size(manager.judge(1020.0, window(1020.0), scale(6))) == 6


def test_memory_is_bounded():
    run = Run(EAGER.change(scale_down_delay=600_000.0))
    for _ in range(2000):
        run.step(scale(3))
    assert len(run.manager.state.decisions) <= 512
    assert len(run.manager.state.measured) == 2
    assert isinstance(run.step(scale(3)), Rejected)


def test_a_long_delay_is_kept_though_decisions_were_merged():
    run = Run(EAGER.change(scale_down_delay=10_000.0))
    verdicts = [run.step(scale(2)) for _ in range(1001)]
    assert all(isinstance(verdict, Rejected) for verdict in verdicts[:-1])
    assert size(verdicts[-1]) == 2
