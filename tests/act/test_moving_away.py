"""A scale-in of executors that host state: it moves away first."""

from __future__ import annotations

import pytest

from penstock.act.scaling import (
    MoveAway,
    Release,
    RequestTotal,
    ScalingPhase,
    ScalingSettings,
    StopUsing,
    begin_change,
    step_change,
)
from penstock.dataflow.window import ExecutorState
from penstock.decide.outcome import Status

PATIENCE = ScalingSettings(executor_timeout=60, drain_timeout=120, move_timeout=30)


def executors(**bins: int) -> tuple[ExecutorState, ...]:
    return tuple(
        ExecutorState(name.removeprefix("e"), "node", 2, state_bins=count) for name, count in bins.items()
    )


BEFORE = executors(e1=4, e2=4, e3=2)


def test_state_moves_away_before_its_executor_is_told_to_stop():
    started = begin_change(0.0, 2, BEFORE, PATIENCE, can_move=True)
    assert started.instructions == (RequestTotal(2), MoveAway(("3",)))
    assert started.change.phase is ScalingPhase.MOVING
    under_way = step_change(started.change, 5.0, BEFORE, batch_boundary=True, moving=True)
    assert (under_way.instructions, under_way.outcome) == ((), None)
    moved = step_change(under_way.change, 9.0, executors(e1=5, e2=5, e3=0), batch_boundary=True, moving=False)
    assert moved.instructions == (StopUsing(("3",)),)
    released = step_change(moved.change, 10.0, executors(e1=5, e2=5, e3=0), batch_boundary=True)
    assert released.instructions == (Release(("3",)), RequestTotal(2))
    outcome = step_change(released.change, 12.0, executors(e1=5, e2=5), batch_boundary=True).outcome
    assert outcome is not None and outcome.status is Status.DONE
    assert "state was moved away in 9 s" in outcome.detail


@pytest.mark.parametrize(("can_move", "bins"), [(False, 2), (True, 0)])
def test_nothing_moves_where_it_cannot_or_where_there_is_no_state(can_move: bool, bins: int):
    started = begin_change(0.0, 2, executors(e1=4, e2=4, e3=bins), PATIENCE, can_move)
    assert started.instructions == (RequestTotal(2), StopUsing(("3",)))


def test_a_move_that_takes_too_long_does_not_keep_the_executor():
    progress = begin_change(0.0, 2, BEFORE, PATIENCE, can_move=True)
    for second in range(1, 29):
        progress = step_change(progress.change, float(second), BEFORE, batch_boundary=False, moving=True)
        assert (progress.instructions, progress.outcome) == ((), None)
    progress = step_change(progress.change, 30.0, BEFORE, batch_boundary=False, moving=True)
    assert progress.instructions == (StopUsing(("3",)),)
    assert progress.change.notes == ("not all state was moved away in 30 s, which is too long",)


def test_state_that_stayed_is_not_said_to_have_moved():
    progress = begin_change(0.0, 2, BEFORE, PATIENCE, can_move=True)
    progress = step_change(progress.change, 7.0, BEFORE, batch_boundary=False, stayed="the query ended")
    assert progress.instructions == (StopUsing(("3",)),)
    assert progress.change.notes == ("not all state was moved away in 7 s: the query ended",)


def test_an_executor_that_dies_while_its_state_moves_needs_no_release():
    progress = begin_change(0.0, 2, BEFORE, PATIENCE, can_move=True)
    progress = step_change(progress.change, 3.0, executors(e1=5, e2=5), batch_boundary=False, moving=True)
    assert (progress.instructions, progress.outcome) == ((), None)
    progress = step_change(progress.change, 4.0, executors(e1=5, e2=5), batch_boundary=False, moving=False)
    assert progress.outcome is not None and progress.outcome.status is Status.DONE
    assert "executor 3 left by itself" in progress.outcome.detail
