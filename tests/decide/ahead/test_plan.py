"""What a size can do, how long a change takes, how many spares there are, and when less has paid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decide.ahead.capacity import CostLine
from penstock.decide.ahead.plan import Caution, ChangeClock, Deaths, Savings, choose_size, find_lot


def test_a_line_of_costs_is_found_through_the_noise():
    random, line = np.random.default_rng(1), CostLine()
    for number in range(300):
        size = 5 + number % 20
        line.take(size, 0.001 * (1 + 0.01 * (size - 1)) * (1 + 0.05 * random.standard_normal()))
    cost, error = line.predict(30)
    assert cost == pytest.approx(0.001 * 1.29, rel=0.03) and error < 0.03
    assert line.noise == pytest.approx(0.05, rel=0.4)
    # 20,000/s: n / (0.001 · (1 + 0.01 · (n - 1))) reaches it with 24.75
    assert line.least_instances(20_000, 64) in (24, 25, 26)


def test_one_size_seen_is_taken_to_be_proportional_and_less_sure_farther_away():
    line = CostLine()
    for _ in range(20):
        line.take(10, 0.002)
    near, far = line.predict(10), line.predict(40)
    assert (near[0], far[0]) == (pytest.approx(0.002, rel=1e-3), pytest.approx(0.002, rel=0.02))
    assert far[1] > 5 * near[1]
    assert line.least_instances(4000, 64) == 8


@settings(max_examples=30, deadline=None)
@given(
    seen=st.lists(
        st.tuples(st.integers(1, 60), st.floats(1e-5, 1e-2, allow_nan=False)), min_size=1, max_size=30
    )
)
def test_costs_are_positive_never_fall_with_size_and_absurd_ones_are_left_out(seen):
    line = CostLine()
    for size, cost in seen:
        line.take(size, cost)
    line.take(3, np.nan)
    line.take(0, 0.1)
    costs = [line.predict(size)[0] for size in (1, 5, 20, 60)]
    assert costs == sorted(costs) and costs[0] > 0 and np.isfinite(costs).all()
    assert line.readings == len(seen)


def test_a_change_takes_as_long_as_changes_were_seen_to():
    clock = ChangeClock(first=60.0)
    assert clock.delay == 60
    for start, seconds in ((100, 40), (300, 60)):
        size = 2 + start // 100
        clock.look(start, {"main": size})
        clock.ask(start, {"main": size + 2})
        assert not clock.look(start + 10, {"main": size})
        assert clock.look(start + seconds, {"main": size + 2})
    # 40 and 60 have a mean of 50 and a deviation of 10
    assert clock.delay == pytest.approx(60)
    clock.look(900, {"main": 1})
    assert list(clock.samples) == [40, 60]


def test_spares_follow_from_how_often_instances_die():
    deaths = Deaths(observed=0.0)
    deaths.look(2700.0, 0)
    assert deaths.spares(70.0, 0.001) == 0
    deaths.look(10.0, 1)
    deaths.look(2690.0, 0)
    # one in 5,400 s: P(some within 70 s) = 1.3 %, P(two) = 0.008 %
    assert (deaths.count, deaths.spares(70.0, 0.001), deaths.spares(70.0, 0.05)) == (1, 1, 0)


def test_the_beginning_of_a_short_time_halves_the_risk_and_a_long_time_without_brings_it_back():
    caution = Caution(risk=0.001)
    for is_short in (True, True, True, False, True, True):
        caution.look(is_short)
    assert caution.times == pytest.approx(0.25, rel=0.01)
    for _ in range(1000):
        caution.look(is_short=False)
    # one short time in a thousand windows is what balances
    assert caution.times == pytest.approx(0.5, rel=0.01)
    for number in range(30):
        caution.look(is_short=number % 2 == 0)
    assert caution.times == pytest.approx(0.1, rel=0.01)


def test_less_is_taken_once_following_the_need_had_saved_the_price():
    savings = Savings(patience=1.0)
    for second in range(0, 100, 10):
        savings.note(second, 10 if second < 50 else 8)
    # eight would have done since second 40: two instances for 50 s
    assert savings.find_paid(90, 0.0, 10, 120.0, 30.0) == 10
    savings.note(100, 8)
    assert savings.find_paid(100, 0.0, 10, 120.0, 30.0) == 8
    # a price of going there and back
    assert replace(savings, patience=2.0).find_paid(100, 0.0, 10, 120.0, 30.0) == 10
    # what is held has been there since second 90 only
    assert savings.find_paid(100, 90.0, 10, 120.0, 30.0) == 10
    savings.note(110, 9)
    assert savings.find_paid(110, 0.0, 10, 60.0, 30.0) == 9
    savings.note(120, 12)
    assert savings.find_paid(120, 0.0, 10, 1.0, 30.0) == 10


def test_a_falling_need_is_followed_to_where_it_is():
    savings = Savings(patience=1.0)
    for step in range(11):
        savings.note(10.0 * step, 30 - step)
    # the sum of 1 to 10 for 10 s each; what the last 20 s needed at most is 29 - 8
    assert savings.find_paid(100.0, 0.0, 30, 551.0, 20.0) == 30
    assert savings.find_paid(100.0, 0.0, 30, 550.0, 20.0) == 21


def test_steps_down_in_a_row_cost_less_patience_and_undone_ones_more():
    savings = Savings()
    savings.change(0.0, 10, 8, 100.0)
    savings.change(100.0, 8, 7, 100.0)
    assert savings.patience == 1
    # one instance for 300 s does not pay for a change to there and back, 400 s would have
    savings.change(400.0, 7, 9, 100.0)
    assert savings.patience == 2
    savings.change(500.0, 9, 8, 100.0)
    savings.change(900.0, 8, 9, 100.0)
    assert savings.patience == 2


@settings(max_examples=50, deadline=None)
@given(needs=st.lists(st.integers(1, 20), min_size=1, max_size=60), held=st.integers(1, 20))
def test_what_has_paid_is_what_a_plain_sum_says(needs, held):
    savings, price, now = Savings(patience=1.0), 60.0, 10.0 * (len(needs) - 1)
    for number, need in enumerate(needs):
        savings.note(10.0 * number, need)
    # following the need without ever growing again: what is needed at most from each moment on
    saved = sum(10.0 * max(0, held - max(needs[number:])) for number in range(1, len(needs)))
    settled = max(needs[-3:])
    paid = min(held, settled) if saved >= price else held
    assert savings.find_paid(now, 0.0, held, price, 25.0) == paid


@pytest.mark.parametrize(
    ("held", "asked", "sizes", "wanted"),
    [
        (10, 11, (11, 10, 13, 14), 13),
        (10, 1, (11, 10, 13, 14), 10),
        (10, 1, (12, 11, 13, 14), 14),
        (10, 1, (9, 8, 12, 14), 10),
        (10, 1, (7, 7, 8, 8), 8),
        (10, 12, (12, 11, 11, 12), 14),
    ],
)
def test_growth_is_asked_for_twice_or_urgent_and_nothing_shrinks_into_a_risk(held, asked, sizes, wanted):
    assert choose_size(held, asked, *sizes, lot=2) == wanted


def test_while_a_load_rises_as_much_is_taken_as_makes_changes_and_early_instances_cheapest():
    # 0.03 % a second: √(2 · 30 · 0.0003) = 13 % of 20; a fifth at the most
    assert [find_lot(20, rising, 30.0) for rising in (0.0, 0.0003, 0.01)] == [0, 2, 4]
