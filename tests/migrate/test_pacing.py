"""The pace: one bin at first, then what the latency budget bears."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.moves import Strategy
from penstock.migrate.pacing import Pace, adapt_pace, choose_first_pace
from penstock.migrate.settings import MigrationSettings

START = Pace(bins=1, most=16, budget_ratio=1.5)


def test_the_first_pace_of_each_strategy_and_its_most() -> None:
    settings = MigrationSettings(bins_per_batch=8)
    paces = {one: choose_first_pace(one, settings, 100) for one in Strategy}
    assert {one: (pace.bins, pace.most) for one, pace in paces.items()} == {
        Strategy.FLUID: (1, 1),
        Strategy.BATCHED: (8, 8),
        Strategy.OPTIMIZED: (1, 8),
        Strategy.ALL_AT_ONCE: (100, 100),
        Strategy.OWN: (100, 100),
    }


def test_cheap_bins_double_the_pace_up_to_the_most() -> None:
    # a bin costs 0.01 s and half a second is free: room for 50
    pace, seen = START, []
    for _ in range(6):
        pace = adapt_pace(pace, pace.bins, 1.0 + 0.01 * pace.bins, 1.0)
        seen.append(pace.bins)
    assert seen == [2, 4, 8, 16, 16, 16]


def test_it_settles_at_what_fits_the_budget() -> None:
    # a bin costs 0.12 s and half a second is free: room for 4
    pace, seen = START, []
    for _ in range(6):
        pace = adapt_pace(pace, pace.bins, 1.0 + 0.12 * pace.bins, 1.0)
        seen.append(pace.bins)
    assert seen == [2, 4, 4, 4, 4, 4]


def test_a_batch_over_the_budget_halves_it() -> None:
    assert adapt_pace(Pace(8, 16, 1.5), 8, 1.6, 1.0).bins == 4


def test_a_batch_far_over_the_budget_brings_it_down_to_what_it_cost() -> None:
    # eight bins took 8 s more, a second each: half a second bears none, so one is tried
    assert adapt_pace(Pace(8, 16, 1.5), 8, 9.0, 1.0).bins == 1


def test_one_quick_batch_does_not_outweigh_what_was_measured_before() -> None:
    slow = adapt_pace(START, 1, 1.4, 1.0)
    assert slow.bins == 1
    # 0.4 s and 0 s: 0.2 s each, room for two
    assert adapt_pace(slow, 1, 1.0, 1.0).bins == 2


def test_a_batch_with_little_to_move_takes_nothing_back() -> None:
    assert adapt_pace(Pace(8, 16, 1.5), 1, 1.01, 1.0).bins == 8
    # unless it shows what a bin costs: 0.2 s each, room for two
    assert adapt_pace(Pace(8, 16, 1.5), 1, 1.2, 1.0).bins == 2


def test_a_batch_in_which_nothing_moved_says_nothing() -> None:
    assert adapt_pace(START, 0, 9.0, 1.0) == START


@given(
    st.integers(1, 64),
    st.lists(st.tuples(st.integers(0, 64), st.floats(0, 100), st.floats(0, 10)), max_size=20),
)
def test_it_stays_between_one_and_the_most(most: int, batches: list[tuple[int, float, float]]) -> None:
    pace = Pace(1, most, 1.5)
    for moved, seconds, steady in batches:
        pace = adapt_pace(pace, moved, seconds, steady)
        assert 1 <= pace.bins <= most
