"""Parallelism as batches read it, set by policies and by hand; executors follow the sum."""

from __future__ import annotations

import pytest

from penstock.dataflow.window import EXECUTORS, ApplicationWindow, Execution
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import ExpectedEffect, Hold, MoveState, Scale
from penstock.errors import ActionFailed, BadInput, NotFound
from penstock.pipeline.board import PATIENCE_SECONDS, Board, BoardActuator
from penstock.pipeline.limits import WithinLimits

LIMITS = {"f": (1, 8), "g": (2, 4), "s": (3, 3)}
EFFECT = ExpectedEffect("")


def a_board(**start):
    return Board(LIMITS, start, fixed=frozenset({"s"}))


def a_scale(**sizes):
    return Scale(sizes, "load", EFFECT)


def test_sizes_stay_within_limits_and_fixed_functions_as_they_are():
    board = a_board(f=50)
    assert board.wanted() == {"f": 8, "g": 2, "s": 3}
    assert board.change({"f": 0, "g": 9, "s": 1, "unknown": 4}) == {"f": 1, "g": 4, "s": 3}


def test_a_pin_holds_against_the_policy_until_it_is_given_back():
    board = a_board()
    board.pin("f", 5)
    assert board.change({"f": 2})["f"] == 5
    assert board.pinned() == {"f": 5}
    board.pin("f", None)
    assert board.change({"f": 2})["f"] == 2


def test_a_pin_is_checked():
    board = a_board()
    with pytest.raises(NotFound, match="no function 'x'; there are f, g, s"):
        board.pin("x", 1)
    with pytest.raises(BadInput, match="'g' may have 2 to 4 instances, not 5"):
        board.pin("g", 5)
    with pytest.raises(BadInput, match="'s' is not scaled: it has 3"):
        board.pin("s", 2)


def test_an_action_ends_when_no_batch_runs_at_an_old_size():
    board = a_board()
    actuator = BoardActuator(board)
    assert board.begin_batch("f") == 1
    actuator.begin(0.0, a_scale(f=4, g=3))
    assert actuator.poll(1.0) is None
    assert actuator.held()["f"] == 1
    board.end_batch("f")
    outcome = actuator.poll(2.0)
    assert (outcome.status, outcome.observed["f"], outcome.observed["g"]) == (Status.DONE, 4, 3)
    assert board.begin_batch("f") == 4


def test_a_batch_without_end_makes_the_change_partial():
    board = a_board()
    board.begin_batch("f")
    actuator = BoardActuator(board)
    actuator.begin(0.0, a_scale(f=4))
    assert actuator.poll(PATIENCE_SECONDS + 1).status is Status.PARTIAL


def test_nothing_but_parallelism_is_changed():
    with pytest.raises(ActionFailed):
        BoardActuator(a_board()).begin(0.0, MoveState((), "", EFFECT))


class Executors:
    def __init__(self, count):
        self.count, self.begun, self.ready = count, [], False

    def begin(self, now, action):
        self.begun.append(dict(action.planned))

    def poll(self, now):
        sizes = self.begun[-1]
        return Outcome(Status.DONE, sizes, sizes, sizes, now, "registered") if self.ready else None

    def abandon(self):
        self.begun.append({})

    def held(self):
        return {EXECUTORS: self.count}


def test_executors_follow_the_sum():
    executors = Executors(2)
    actuator = BoardActuator(a_board(), executors, slots_per_executor=4)
    actuator.begin(0.0, a_scale(f=8, g=4))
    assert executors.begun == [{EXECUTORS: 4}]
    assert actuator.poll(1.0) is None
    executors.ready = True
    assert actuator.poll(2.0).detail == "registered"


def test_executors_stay_where_the_sum_fits_them():
    executors = Executors(2)
    BoardActuator(a_board(), executors, slots_per_executor=4).begin(0.0, a_scale(f=2))
    assert executors.begun == []


class Fixed:
    name = "fixed"

    def __init__(self, answer):
        self.answer = answer

    def propose(self, window):
        return self.answer


WINDOW = ApplicationWindow("p", 0.0, 10.0, Execution.PER_OPERATOR, {"f": 2, "g": 2, "s": 3}, ())


def test_a_proposal_is_brought_within_limits_and_says_so():
    policy = WithinLimits(Fixed(a_scale(f=20, g=1, s=3)), LIMITS, dict)
    answer = policy.propose(WINDOW)
    assert dict(answer.parallelism) == {"f": 8, "g": 2, "s": 3}
    assert "f 20 → 8 (its limit), g 1 → 2 (its limit)" in answer.reason


def test_a_pinned_function_keeps_its_size_and_nothing_left_is_a_hold():
    policy = WithinLimits(Fixed(a_scale(f=6)), LIMITS, lambda: {"f": 2})
    answer = policy.propose(WINDOW)
    assert isinstance(answer, Hold) and "f 6 → 2 (pinned)" in answer.reason
    hold = Hold("fine")
    assert WithinLimits(Fixed(hold), LIMITS, dict).propose(WINDOW) is hold
