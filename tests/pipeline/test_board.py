"""Parallelism as batches read it, set by policies and by hand."""

from __future__ import annotations

import pytest

from penstock.dataflow.window import OperatorWindow
from penstock.decide.limits import WithinLimits
from penstock.decide.policy import ExpectedEffect, Hold, Scale
from penstock.errors import BadInput, NotFound
from penstock.pipeline.board import Board

LIMITS = {"f": (1, 8), "g": (2, 4), "s": (3, 3)}
EFFECT = ExpectedEffect("")


def a_board(**start):
    return Board(LIMITS, start, fixed=frozenset({"s"}))


def a_scale(**sizes):
    return Scale(sizes, "load", EFFECT)


def test_sizes_stay_within_limits_and_fixed_functions_as_they_are():
    board = a_board(f=50)
    assert board.wanted == {"f": 8, "g": 2, "s": 3}
    assert board.change({"f": 0, "g": 9, "s": 1, "unknown": 4}) == {"f": 1, "g": 4, "s": 3}


def test_a_pin_holds_against_the_policy_until_it_is_given_back():
    board = a_board()
    board.pin("f", 5)
    assert board.change({"f": 2})["f"] == 5
    assert board.pinned == {"f": 5}
    board.pin("f", None)
    assert board.change({"f": 2})["f"] == 2


def test_a_pin_is_checked():
    board = a_board()
    with pytest.raises(NotFound, match="no function 'x'; there are f, g, s"):
        board.pin("x", 1)
    with pytest.raises(BadInput, match="'g' may have 2 to 4 instances, not 5"):
        board.pin("g", 5)
    with pytest.raises(BadInput, match=r"'g' may have 2 to 4 instances, not 2\.5"):
        board.pin("g", 2.5)
    with pytest.raises(BadInput, match="'s' is not scaled: it has 3"):
        board.pin("s", 2)


def test_a_function_with_state_has_its_size_when_its_state_has_moved():
    board = a_board()
    board.settle("f", 1)
    board.change({"f": 4})
    assert (board.wanted["f"], board.sizes["f"], board.begin_batch("f")) == (4, 1, 1)
    board.settle("f", 99)
    assert board.sizes["f"] == 8


def test_pins_of_the_run_before_are_taken_up_as_far_as_they_are_allowed():
    board = a_board()
    board.restore({"f": 5, "g": 9, "s": 2, "gone": 1})
    assert board.pinned == {"f": 5}


class Fixed:
    name = "fixed"

    def __init__(self, answer):
        self.answer = answer

    def propose(self, window):
        return self.answer


WINDOW = OperatorWindow("p", 0.0, 10.0, {"f": 2, "g": 2, "s": 3}, ())


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
