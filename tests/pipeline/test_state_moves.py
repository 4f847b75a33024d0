"""State follows its function's instances: what is planned, what the board is told, when it rests."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.moves import Bin
from penstock.decide.outcome import Status
from penstock.errors import SparkUnavailable
from penstock.migrate.bins import BinState, StateView, Worker
from penstock.migrate.mover import MovesEnded
from penstock.pipeline.board import Board
from penstock.pipeline.state_moves import (
    REST_SECONDS,
    StateSpreader,
    count_executors,
    find_hosts,
    plan_spread,
)
from tests.fakes import a_window


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
            self.view = self.view.place({move.bin: move.target for move in plan.moves})
        self.outcome = MovesEnded(status, 1, "")


def spreader(places, start, busy=True):
    board = Board({"total": (1, 8)}, {"total": start})
    mover = FakeMover(a_view(*places))
    return StateSpreader(mover, board, lambda: {"q": "total"}, 2, lambda _name: busy), mover, board


@pytest.mark.parametrize(("places", "size", "hosts"), [("11111111", 8, 4), ("12341234", 3, 2)])
def test_state_spreads_and_draws_together_with_the_size(places, size, hosts):
    state, mover, board = spreader(places, 8 if hosts == 2 else 2)
    board.change({"total": size})
    assert state.begin()
    assert board.sizes["total"] == (2 if hosts == 4 else 8)
    mover.arrive()
    assert state.poll()[0] is Status.DONE
    assert board.sizes["total"] == size
    assert len(set(mover.view.placement().values())) == hosts
    assert not state.begin() and state.bins() == dict.fromkeys(
        set(mover.view.placement().values()), 8 // hosts
    )


def test_what_is_owed_without_a_change_of_size_is_proposed_and_after_a_failure_later_again():
    state, mover, _ = spreader("11112222", 2)
    move = state.propose(0.0, a_window())
    assert {one.target for one in move.moves} == {"1"} and len(move.moves) == 4
    state.carry_out(move)
    assert state.propose(1.0, a_window()) is None
    mover.outcome = MovesEnded(Status.FAILED, 0, "the query was restarted")
    assert state.propose(2.0, a_window()) is None
    assert state.propose(REST_SECONDS, a_window()) is None
    assert state.propose(REST_SECONDS + 3, a_window()) is not None
    mover.problem = SparkUnavailable("no answer")
    assert state.propose(3 * REST_SECONDS, a_window()) is None


def test_a_function_without_batches_is_left_alone_and_counts_as_it_should_be():
    state, _, board = spreader("11112222", 2, busy=False)
    assert not state.begin() and board.sizes["total"] == 2


def test_queries_of_others_are_not_touched():
    state, mover, board = spreader("11112222", 2)
    state._functions = dict
    assert not state.begin() and mover.plans is None and board.sizes == {"total": 2}
    assert not state.stop("the end")


def a_view(*places, workers=4, slots=2):
    bins = tuple(BinState(Bin("q", 0, n), place, bytes=100) for n, place in enumerate(places))
    return StateView(
        "q", "total", 5, bins, tuple(Worker(str(n), "host", slots) for n in range(1, workers + 1))
    )


def after(view, moves):
    return Counter(view.place({move.bin: move.target for move in moves}).placement().values())


@pytest.mark.parametrize(
    ("instances", "slots", "here", "wanted"),
    [(1, 3, 4, 1), (3, 3, 4, 1), (4, 3, 4, 2), (12, 3, 4, 4), (40, 3, 4, 4), (5, 0, 9, 5), (2, 1, 0, 1)],
)
def test_instances_take_whole_executors(instances, slots, here, wanted):
    assert count_executors(instances, slots, here) == wanted


def test_growing_brings_each_new_executor_its_share_with_the_fewest_moves():
    view = a_view(*"111111")
    moves = plan_spread(view, 3)
    assert sorted(after(view, moves).values()) == [2, 2, 2] and len(moves) == 4


def test_shrinking_moves_what_lies_elsewhere_and_nothing_else():
    view = a_view(*"111223")
    moves = plan_spread(view, 2)
    assert after(view, moves) == {"1": 3, "2": 3} and len(moves) == 1
    assert after(view, plan_spread(view, 1)) == {"1": 6}


def test_what_lies_right_stays():
    view = a_view(*"1122")
    assert plan_spread(view, 2) == () and find_hosts(view) == {"1", "2"}


def test_bins_of_a_dead_executor_are_nobody_s_to_move():
    view = a_view("1", "9", None, "1", workers=2)
    assert {move.bin.partition for move in plan_spread(view, 1)} == set()
    assert find_hosts(view) == {"1"}


@given(st.lists(st.sampled_from("12345"), min_size=1, max_size=24), st.integers(1, 5))
def test_all_bins_end_on_no_more_executors_than_asked_and_the_fullest_has_as_few_as_can_be(places, executors):
    view = a_view(*places, workers=5)
    moves = plan_spread(view, executors)
    ended = after(view, moves)
    assert sum(ended.values()) == len(places) and len(ended) <= executors
    assert max(ended.values()) == -(-len(places) // executors)
    there = view.place({move.bin: move.target for move in moves})
    assert plan_spread(there, executors) == ()
