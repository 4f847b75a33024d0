"""Moves of state pass the manager: what it accepts, and what it rejects by which guardrail."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from penstock.dataflow.moves import Bin, Move, Plan, Strategy
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.goals import SizeBounds
from penstock.decide.manager.manager import Accepted, Rejected, Waiting
from penstock.decide.policy import ExpectedEffect, MoveState
from tests.decide.manager_run import EAGER, Run, size
from tests.decide.situations import hold, scale, window

PLAN = Plan("q", (Move(11, Bin("q", 0, 3), "1", "2"),), Strategy.FLUID, "uneven")
MOVE = MoveState((PLAN,), "state lies unevenly", ExpectedEffect("1 bin moves"))


def judge_move(run: Run, move: MoveState = MOVE) -> Accepted | Rejected:
    return run.manager.judge_move(window(run.now), move)


@pytest.mark.parametrize("answer", [hold(), NotReady("it warms up", "a window")], ids=["held", "not ready"])
def test_a_move_is_accepted_where_the_size_stays(answer):
    run = Run()
    run.step(answer)
    assert run.manager.object_to_moves() is None
    assert judge_move(run) == Accepted(MOVE)


def test_a_move_is_accepted_during_warm_up():
    """Executors that were just added wait for their state."""
    run = Run(EAGER.change(warm_up_intervals=3))
    assert "warming up" in run.step(hold()).reason
    assert judge_move(run) == Accepted(MOVE)


@pytest.mark.parametrize(("most", "accepted"), [(100, False), (4, True)], ids=["a cut step", "the most"])
def test_the_rest_of_a_step_that_was_cut_comes_before_a_move(most: int, accepted: bool):
    """State that begins to move in the warm-up keeps back the size that is known to be needed."""
    run = Run(EAGER.change(largest_step_up=2.0, warm_up_intervals=2), held=2, bounds=SizeBounds(most=most))
    while not isinstance(verdict := run.step(scale(6)), Accepted):
        assert run.now < 1200.0
    assert size(verdict) == 4
    run.perform(verdict)
    run.now += 1.0
    assert isinstance(run.step(NotReady("its first batch runs", "a batch")), Waiting)
    verdict = judge_move(run)
    assert isinstance(verdict, Accepted) is accepted
    assert accepted or verdict == Rejected(
        "size-first", f"the size may be about to change: the last step went less far than {EXECUTORS} 6"
    )


def test_a_move_is_rejected_while_an_action_is_under_way():
    run = Run()
    run.manager.action_started(run.now, run.step(scale(6)).action)
    run.step(hold())
    assert judge_move(run) == Rejected("action-under-way", f"an action is under way: {EXECUTORS} 6")


def test_a_size_that_is_accepted_or_still_considered_changes_first():
    run = Run(EAGER.change(activation_intervals=2))
    waiting = run.step(scale(6))
    assert isinstance(waiting, Waiting)
    assert judge_move(run) == Rejected("size-first", f"the size may be about to change: {waiting.reason}")
    accepted = run.step(scale(6))
    assert size(accepted) == 6
    assert judge_move(run) == Rejected("size-first", f"the size may be about to change: {accepted.reason}")


@pytest.mark.parametrize(("wanted", "accepted"), [(9, True), (1, False)], ids=["more", "less"])
def test_growth_that_is_rejected_stays_so_and_a_reduction_may_only_be_put_off(wanted: int, accepted: bool):
    run = Run(bounds=SizeBounds(least=4, most=4))
    assert isinstance(run.step(scale(wanted)), Rejected)
    assert isinstance(judge_move(run), Accepted) is accepted


def test_a_size_that_the_manager_goes_back_to_changes_first():
    run = Run(EAGER.change(rollback=True))
    run.step(hold())
    run.step(hold())
    run.perform(run.step(scale(3)))
    while not isinstance(verdict := run.step(hold(), observed=500.0), Accepted):
        assert run.now < 1200.0
    assert "does worse" in verdict.reason
    assert judge_move(run).guardrail == "size-first"


def test_a_move_of_nothing_is_rejected_and_logged(caplog):
    caplog.set_level(logging.INFO, logger="penstock.decide.manager.manager")
    run = Run()
    run.step(hold())
    verdict = judge_move(run, replace(MOVE, plans=(replace(PLAN, moves=()),)))
    assert verdict == Rejected("bad-proposal", "no bin is to move; proposed because: state lies unevenly")
    assert [record.getMessage() for record in caplog.records] == [
        f"app: rejected by bad-proposal: {verdict.reason}"
    ]
