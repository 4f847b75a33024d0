"""Trends: a Kalman filter by the textbook, weights that follow what comes, and quantiles that hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from penstock.decide.ahead.demand import HASTES, RateTrend, SourceDemand, find_quantile
from penstock.decide.ahead.season import Season


def filter_by_the_textbook(rates, noises, haste, seconds=10.0):
    """Local linear trend with matrices (Harvey 1989, section 3.2): predict, then correct."""
    state = np.array([rates[0], 0.0])
    spread = np.diag([rates[0] ** 2, (1e-3 * rates[0]) ** 2])
    move = np.array([[1.0, seconds], [0.0, 1.0]])
    look = np.array([[1.0, 0.0]])
    for rate, noise in zip(rates[1:], noises, strict=True):
        strays, turns = (np.array(haste) * state[0]) ** 2
        wander = np.array(
            [
                [strays * seconds + turns * seconds**3 / 3, turns * seconds**2 / 2],
                [turns * seconds**2 / 2, turns * seconds],
            ]
        )
        state, spread = move @ state, move @ spread @ move.T + wander
        gain = spread @ look.T / (look @ spread @ look.T + (noise * state[0]) ** 2)
        state = state + gain[:, 0] * (rate - state[0])
        spread = (np.eye(2) - gain @ look) @ spread
    return state, spread


def test_every_filter_is_that_of_the_textbook():
    random = np.random.default_rng(3)
    rates = (1000 + 5 * np.arange(40)) * (1 + 0.04 * random.standard_normal(40))
    trend, noises = RateTrend(), []
    for number, rate in enumerate(rates):
        noises.append(trend.noise)
        trend.take(10.0 * number, 10.0 * number + 10, float(rate))
    for number, haste in enumerate(HASTES):
        state, spread = filter_by_the_textbook(rates.tolist(), noises[1:], haste)
        assert (trend.levels[number], trend.slopes[number]) == pytest.approx(state.tolist(), rel=1e-9)
        expected = [spread[0, 0], spread[0, 1], spread[1, 1]]
        assert trend.spread[number].tolist() == pytest.approx(expected, rel=1e-6)


def test_a_ramp_is_followed_and_its_noise_measured():
    random, trend = np.random.default_rng(5), RateTrend()
    for number in range(200):
        rate = (1000 + 10 * number) * (1 + 0.05 * random.standard_normal())
        trend.take(10.0 * number, 10.0 * number + 10, rate)
    assert trend.slope == pytest.approx(1.0, rel=0.3)
    assert trend.level == pytest.approx(2990, rel=0.04)
    assert trend.noise == pytest.approx(0.05, rel=0.35)
    assert trend.weights[-2:].sum() < 0.01 and (trend.weights > 0).all()


def test_a_jump_is_believed_within_two_windows_by_those_that_expect_jumps():
    trend = RateTrend()
    for number in range(60):
        trend.take(10.0 * number, 10.0 * number + 10, 100.0 if number < 58 else 1000.0)
    assert trend.level == pytest.approx(1000, rel=0.1) and trend.weights[:2].sum() < 0.01


def test_the_quantile_of_one_normal_distribution_is_its_own():
    one = find_quantile(np.array([1.0]), np.array([[100.0]]), np.array([[10.0]]), 0.001)
    assert one == pytest.approx(norm.ppf(0.999, 100, 10), rel=1e-4)
    # half of the moments are far lower, so the rest may be exceeded twice as often
    two = find_quantile(np.array([0.5]), np.array([[100.0], [10.0]]), np.array([[10.0], [1.0]]), 0.001)
    assert two == pytest.approx(norm.ppf(0.998, 100, 10), rel=1e-4)


@settings(max_examples=40, deadline=None)
@given(
    weights=st.lists(st.floats(0.01, 1), min_size=3, max_size=3),
    means=st.lists(st.floats(1, 1e6), min_size=3, max_size=3),
    risk=st.floats(1e-4, 0.2),
)
def test_a_mixture_exceeds_its_quantile_as_often_as_the_risk(weights, means, risk):
    shares = np.array(weights) / sum(weights)
    deviations = np.array(means) / 10
    found = find_quantile(shares, np.array([means]), deviations[np.newaxis], risk)
    assert float(shares @ norm.sf(found, means, deviations)) <= risk * (1 + 1e-6)
    assert float(shares @ norm.sf(found * 0.999, means, deviations)) >= risk * (1 - 1e-6)


def feed(demand, rates, seconds=10.0, start=0.0):
    for number, rate in enumerate(rates):
        demand.take(start + seconds * number, start + seconds * (number + 1), float(rate), 60.0)
    return start + seconds * len(rates)


def test_a_load_exceeds_what_is_said_of_it_about_as_seldom_as_is_said():
    random, demand = np.random.default_rng(11), SourceDemand(None)
    load = 1000 + 300 * np.sin(np.arange(1500) / 250)
    exceeded = []
    for number, rate in enumerate(load[:-6]):
        demand.take(10.0 * number, 10.0 * number + 10, rate * (1 + 0.05 * random.standard_normal()), 60.0)
        if number > 100:
            said = demand.quantile(10.0 * number + 10, [10.0 * number + 65], 0.01, 0.0, 0.05)
            exceeded.append(load[number + 6] > said)
    assert np.mean(exceeded) <= 0.02


def test_the_second_spike_is_expected_before_it_comes():
    day = np.full(1440, 100.0)
    day[700:730] = 400.0
    demand = SourceDemand(Season(14_400.0))
    now = feed(demand, [*day, *day[:696]])
    before = demand.quantile(now, [now + 10], 0.001, 0.0, 0.0)
    ahead = demand.quantile(now, [now + 30, now + 60], 0.001, 0.0, 0.0)
    assert before < 130 and ahead >= 400


def test_a_season_that_was_wrong_counts_less_and_one_of_another_kind_of_day_not_at_all():
    flat, spike = np.full(1440, 100.0), np.full(1440, 100.0)
    spike[700:730] = 400.0
    demand = SourceDemand(Season(14_400.0))
    now = feed(demand, [*spike, *flat[:696]])
    first = demand.season.belief
    demand.quantile(now, [now + 60], 0.001, 0.0, 0.0)
    then = feed(demand, flat[:60], start=now)
    # for an hour or two this is another kind of day, and after it a season that was wrong once
    assert (first, demand.season.belief) == (0.5, 0.0)
    feed(demand, flat[:680], start=then)
    assert demand.season.belief == pytest.approx(1 / 3)
    random = np.random.default_rng(2)
    other = SourceDemand(Season(14_400.0))
    feed(other, [*random.uniform(10, 1000, 1440), *np.full(400, 100.0)])
    assert other.season.belief == 0


@pytest.mark.parametrize(
    ("start", "end", "rate", "why"),
    [
        (1000, 1010, np.nan, "cannot be right"),
        (1000, 1010, -1.0, "cannot be right"),
        (900, 1000, 5.0, "no newer"),
        (1010, 1000, 5.0, "cannot be right"),
        (9000, 9010, 100.0, "begins anew"),
    ],
)
def test_absurd_doubled_and_gapped_readings_step_aside_with_a_reason(start, end, rate, why):
    demand = SourceDemand(None)
    feed(demand, np.full(100, 100.0))
    assert why in demand.take(start, end, rate, 60.0)
    assert demand.trend.level == pytest.approx(100)


def test_a_season_is_kept_for_the_next_run_and_an_absurd_one_refused():
    season = Season(86400.0)
    for minute in range(100):
        season.take(60.0 * minute + 30, 100.0 + minute, 100.0)
    again = Season(86400.0)
    again.recall(season.to_plain())
    assert again.to_plain() == season.to_plain()
    for body in ({**season.to_plain(), "seconds": 3600}, {**season.to_plain(), "bins": [[1, -5, 1]]}):
        with pytest.raises(ValueError, match=r"another length|0 or more"):
            again.recall(body)
