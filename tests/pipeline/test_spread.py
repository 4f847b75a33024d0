"""State over more and over fewer executors: evenly, and with no move that is not needed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.migrate.bins import Bin, BinState, StateView, Worker
from penstock.pipeline.spread import executors_for, hosts, spread_over


def a_view(*places, workers=4, slots=2):
    bins = tuple(BinState(Bin("q", 0, n), place, bytes=100) for n, place in enumerate(places))
    return StateView(
        "q", "total", 5, bins, tuple(Worker(str(n), "host", slots) for n in range(1, workers + 1))
    )


def after(view, moves):
    return Counter(view.placed({move.bin: move.target for move in moves}).placement().values())


@pytest.mark.parametrize(
    ("instances", "slots", "here", "wanted"),
    [(1, 3, 4, 1), (3, 3, 4, 1), (4, 3, 4, 2), (12, 3, 4, 4), (40, 3, 4, 4), (5, 0, 9, 5), (2, 1, 0, 1)],
)
def test_instances_take_whole_executors(instances, slots, here, wanted):
    assert executors_for(instances, slots, here) == wanted


def test_growing_brings_each_new_executor_its_share_with_the_fewest_moves():
    view = a_view(*"111111")
    moves = spread_over(view, 3)
    assert sorted(after(view, moves).values()) == [2, 2, 2] and len(moves) == 4


def test_shrinking_moves_what_lies_elsewhere_and_nothing_else():
    view = a_view(*"111223")
    moves = spread_over(view, 2)
    assert after(view, moves) == {"1": 3, "2": 3} and len(moves) == 1
    assert after(view, spread_over(view, 1)) == {"1": 6}


def test_what_lies_right_stays():
    view = a_view(*"1122")
    assert spread_over(view, 2) == () and hosts(view) == {"1", "2"}


def test_bins_of_a_dead_executor_are_nobody_s_to_move():
    view = a_view("1", "9", None, "1", workers=2)
    assert {move.bin.partition for move in spread_over(view, 1)} == set()
    assert hosts(view) == {"1"}


@given(st.lists(st.sampled_from("12345"), min_size=1, max_size=24), st.integers(1, 5))
def test_all_bins_end_on_no_more_executors_than_asked_and_the_fullest_has_as_few_as_can_be(places, executors):
    view = a_view(*places, workers=5)
    moves = spread_over(view, executors)
    ended = after(view, moves)
    assert sum(ended.values()) == len(places) and len(ended) <= executors
    assert max(ended.values()) == -(-len(places) // executors)
    there = view.placed({move.bin: move.target for move in moves})
    assert spread_over(there, executors) == ()
