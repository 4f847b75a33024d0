"""State follows its function's instances: what is planned, what the board is told, when it rests."""

from __future__ import annotations

import pytest

from penstock.decide.outcome import Status
from penstock.errors import SparkUnavailable
from penstock.migrate.plan import plan_from_plain
from penstock.pipeline.board import Board
from penstock.pipeline.state_moves import REST_SECONDS, StateSpreader
from tests.fakes import a_window
from tests.pipeline.test_spread import a_view


class FakeMover:
    def __init__(self, view):
        self.view, self.plans, self.outcome, self.problem = view, None, None, None

    def views(self):
        if self.problem is not None:
            raise self.problem
        return (self.view,)

    def begin(self, plans):
        self.plans, self.outcome = plans, None

    def moving(self):
        return self.plans is not None and self.outcome is None

    def ended(self):
        return self.outcome

    def stop(self, reason):
        return self.moving()

    def arrive(self, status=Status.DONE):
        for plan in self.plans:
            moves = plan_from_plain(plan).moves
            self.view = self.view.placed({move.bin: move.target for move in moves})
        self.outcome = (status, 1, "")


def spreader(places, start, busy=True):
    board = Board({"total": (1, 8)}, {"total": start})
    mover = FakeMover(a_view(*places))
    return StateSpreader(mover, board, lambda: {"q": "total"}, 2, lambda _name: busy), mover, board


@pytest.mark.parametrize(("places", "size", "hosts"), [("11111111", 8, 4), ("12341234", 3, 2)])
def test_state_spreads_and_draws_together_with_the_size(places, size, hosts):
    state, mover, board = spreader(places, 8 if hosts == 2 else 2)
    board.change({"total": size})
    assert state.begin()
    assert board.sizes()["total"] == (2 if hosts == 4 else 8)
    mover.arrive()
    assert state.ended()[0] is Status.DONE
    assert board.sizes()["total"] == size
    assert len(set(mover.view.placement().values())) == hosts
    assert not state.begin() and state.bins() == dict.fromkeys(
        set(mover.view.placement().values()), 8 // hosts
    )


def test_what_is_owed_without_a_change_of_size_is_proposed_and_after_a_failure_later_again():
    state, mover, _ = spreader("11112222", 2)
    move = state.propose(0.0, a_window())
    assert {target for _, _, target in move.moves} == {"1"} and len(move.moves) == 4
    state.carry_out(move)
    assert state.propose(1.0, a_window()) is None
    mover.outcome = (Status.FAILED, 0, "the query was restarted")
    assert state.propose(2.0, a_window()) is None
    assert state.propose(REST_SECONDS, a_window()) is None
    assert state.propose(REST_SECONDS + 3, a_window()) is not None
    mover.problem = SparkUnavailable("no answer")
    assert state.propose(3 * REST_SECONDS, a_window()) is None


def test_a_function_without_batches_is_left_alone_and_counts_as_it_should_be():
    state, _, board = spreader("11112222", 2, busy=False)
    assert not state.begin() and board.sizes()["total"] == 2


def test_queries_of_others_are_not_touched():
    state, mover, board = spreader("11112222", 2)
    state._functions = dict
    assert not state.begin() and mover.plans is None and board.sizes() == {"total": 2}
    assert not state.stop("the end")
