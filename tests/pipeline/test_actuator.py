"""A change of sizes in its order: executors, state and batches; who is late makes it partial."""

from __future__ import annotations

import pytest

from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import BINS, ExpectedEffect, MoveState
from penstock.errors import ActionFailed, SparkUnavailable
from penstock.migrate.mover import MovesEnded
from penstock.pipeline.actuator import PATIENCE_SECONDS, BoardActuator
from penstock.pipeline.board import Board
from penstock.pipeline.fusing import FusePlan
from tests.pipeline.test_board import a_board, a_scale

EFFECT = ExpectedEffect("")


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


def test_what_is_pinned_stays_and_the_outcome_says_so():
    board = a_board()
    board.pin("f", 2)
    actuator = BoardActuator(board)
    actuator.begin(0.0, a_scale(f=4, g=3))
    outcome = actuator.poll(1.0)
    assert (outcome.status, outcome.observed["f"], outcome.observed["g"]) == (Status.PARTIAL, 2, 3)
    assert outcome.detail == "pinned or at its limit: f at 2"


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
    assert actuator.poll(2.0).detail == "4 executors: registered"


def test_executors_keep_within_their_limits():
    executors = Executors(2)
    BoardActuator(a_board(), executors, 1, None, (1, 3)).begin(0.0, a_scale(f=8))
    assert executors.begun == [{EXECUTORS: 3}]


def test_executors_stay_where_the_sum_fits_them():
    executors = Executors(2)
    BoardActuator(a_board(), executors, slots_per_executor=4).begin(0.0, a_scale(f=2))
    assert executors.begun == []


class State:
    """Moves that end when told to."""

    def __init__(self, log, board, moves=True):
        self.log, self.board, self.moves, self.outcome = log, board, moves, None

    def begin(self):
        if isinstance(self.moves, Exception):
            raise self.moves
        self.log.append("state")
        return self.moves

    def carry_out(self, action):
        self.log.append(action)

    def poll(self):
        return self.outcome

    def stop(self, reason):
        self.log.append(reason)
        return True


class LoggedExecutors(Executors):
    def __init__(self, log, count):
        super().__init__(count)
        self.log = log

    def begin(self, now, action):
        super().begin(now, action)
        self.log.append("executors")


@pytest.mark.parametrize(
    ("sizes", "order"),
    [({"f": 8, "g": 4}, ["executors", "state"]), ({"f": 1, "g": 2}, ["state", "executors"])],
)
def test_executors_come_before_state_and_go_after_it(sizes, order):
    log, board = [], a_board(f=4, g=4)
    state, executors = State(log, board), LoggedExecutors(log, 3)
    actuator = BoardActuator(board, executors, 4, state)
    actuator.begin(0.0, a_scale(**sizes))
    assert log == order[:1] and actuator.poll(1.0) is None
    executors.ready, state.outcome = True, MovesEnded(Status.DONE, 2, "moved")
    outcome = actuator.poll(2.0)
    assert log == order and outcome.status is Status.DONE
    assert "2 bins moved" in outcome.detail and "registered" in outcome.detail


def test_a_step_that_cannot_begin_is_told_of_and_left_out():
    log, board = [], a_board()
    executors = Executors(1)
    executors.begin = lambda now, action: executors.refuse()
    executors.refuse = lambda: (_ for _ in ()).throw(ActionFailed("no room"))
    state = State(log, board, moves=False)
    actuator = BoardActuator(board, executors, 1, state)
    actuator.begin(0.0, a_scale(f=4))
    assert actuator.poll(1.0).detail == "no room" and log == ["state"]


def test_state_that_cannot_move_now_costs_nothing_but_a_word():
    state = State([], a_board(), SparkUnavailable("no answer"))
    actuator = BoardActuator(a_board(), state=state)
    actuator.begin(0.0, a_scale(f=4))
    assert actuator.poll(1.0).detail == "state stays where it is: no answer"
    state.moves = False
    actuator.begin(2.0, a_scale(f=2))
    assert actuator.poll(3.0).detail == ""


def test_state_that_did_not_arrive_makes_the_change_partial_at_once():
    board = a_board()
    board.settle("f", 2)
    state = State([], board)
    actuator = BoardActuator(board, state=state)
    actuator.begin(0.0, a_scale(f=4))
    assert actuator.poll(1.0) is None
    state.outcome = MovesEnded(Status.PARTIAL, 1, "an executor died")
    outcome = actuator.poll(2.0)
    assert (outcome.status, outcome.observed["f"]) == (Status.PARTIAL, 2)
    assert outcome.detail == "1 bins moved: an executor died"


def test_moves_without_end_are_stopped():
    log = []
    actuator = BoardActuator(a_board(), state=State(log, a_board()))
    actuator.begin(0.0, a_scale(f=4))
    assert actuator.poll(PATIENCE_SECONDS) is None
    assert "not moved within" in actuator.poll(PATIENCE_SECONDS + 1).detail
    assert log[-1] == "the move took too long"


def test_moves_of_their_own_and_what_is_given_up():
    log = []
    state = State(log, a_board())
    actuator, move = BoardActuator(a_board(), state=state), MoveState((), "uneven", EFFECT)
    actuator.begin(0.0, move)
    assert log == [move] and actuator.poll(1.0) is None
    state.outcome = MovesEnded(Status.PARTIAL, 3, "one came back")
    outcome = actuator.poll(2.0)
    assert (outcome.status, dict(outcome.observed)) == (Status.PARTIAL, {BINS: 3})
    actuator.begin(3.0, move)
    actuator.abandon()
    actuator.begin(4.0, a_scale(f=3))
    actuator.abandon()
    assert log[-1] == "the change was given up" and log.count("the change was given up") == 2


def test_a_change_of_a_function_that_is_fused_says_that_it_changes_the_group():
    board = Board({"a": (1, 9), "b": (1, 9)}, {}, plan=FusePlan([("a", "b")], "always", 0.2))
    actuator = BoardActuator(board)
    actuator.begin(0.0, a_scale(a=4))
    outcome = actuator.poll(0.0)
    assert outcome.status is Status.DONE
    assert outcome.detail == "one query with 5 instances: a 4 + b 1"
