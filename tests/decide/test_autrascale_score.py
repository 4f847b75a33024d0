"""The formulas of AuTraScale against values worked out by hand, most of them from tables II and III."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.autrascale_score import (
    MOST_ENUMERATED,
    SearchSpace,
    allocation_ratio,
    bootstrap_sizes,
    expected_improvement,
    features,
    fit_scores,
    recommend,
    score,
)
from penstock.decide.autrascale_settings import AutraScaleSettings
from penstock.decide.autrascale_throughput import Readings
from penstock.errors import BadSettings

WORDS, YAHOO = (3, 4, 12, 10), (4, 2, 1, 1, 34)
"""What throughput needs: the ends of the throughput phase in section V-B."""


@pytest.mark.parametrize(
    ("base", "size", "latency", "target", "published"),
    [
        (WORDS, (7, 8, 12, 38), 172, 180, 0.9096),
        (WORDS, (10, 16, 12, 10), 160, 180, 0.9275),
        (YAHOO, (4, 2, 1, 1, 40), 223.7, 300, 0.994),
        (YAHOO, (22, 2, 1, 1, 36), 246, 300, 0.965),
    ],
)
def test_equation_4_gives_the_scores_of_the_tables(base, size, latency, target, published):
    assert score(size, base, latency, target, 0.8) == pytest.approx(published, abs=6e-5)


def test_a_missed_target_costs_its_share():
    # 0.6·(0.2/0.3) + 0.4·((2/4 + 5/10)/2) = 0.4 + 0.2
    assert score((4, 10), (2, 5), 0.3, 0.2, 0.6) == pytest.approx(0.6)


@given(
    base=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    extra=st.integers(0, 30),
    latency=st.floats(0.001, 100),
    weight=st.floats(0, 1),
)
def test_scores_lie_between_0_and_1_and_more_of_the_same_never_scores_better(base, extra, latency, weight):
    base = tuple(base)
    more = tuple(count + extra for count in base)
    value = score(more, base, latency, 1.0, weight)
    assert 0 <= value <= 1 + 1e-12
    assert value <= score(base, base, latency, 1.0, weight) + 1e-12


def test_the_threshold_is_equation_9():
    # the tables use 0.9, which is 0.8 + 0.2/(1 + 1)
    assert AutraScaleSettings(latency_weight=0.8, over_allocation=1.0).score_threshold == pytest.approx(0.9)
    assert AutraScaleSettings(latency_weight=0.5, over_allocation=0.25).score_threshold == pytest.approx(0.9)


def test_bootstrap_samples_are_of_both_kinds():
    # 12 to 40 in two steps of 14, then each operator alone at 40
    assert bootstrap_sizes(SearchSpace(WORDS, 40), 3) == (
        (12, 12, 12, 12),
        (26, 26, 26, 26),
        (40, 40, 40, 40),
        (40, 4, 12, 10),
        (3, 40, 12, 10),
        (3, 4, 40, 10),
        (3, 4, 12, 40),
    )


def test_bootstrap_samples_are_not_repeated_where_there_is_little_room():
    assert bootstrap_sizes(SearchSpace((2,), 3), 3) == ((2,), (3,))
    assert bootstrap_sizes(SearchSpace((2, 2), 2), 5) == ((2, 2),)


def test_expected_improvement_against_values_worked_out_by_hand():
    normal = statistics.NormalDist()
    # K = 0.9 − 0.85 − 0.01 = 0.04, Z = 0.4: 0.04·0.65542 + 0.1·0.36827 = 0.063044
    # K = 0, Z = 0: 0.2·φ(0) = 0.2·0.398942 = 0.079788
    # σ = 0: nothing is expected, even of a better mean
    got = expected_improvement(np.array([0.9, 0.86, 0.99]), np.array([0.1, 0.2, 0.0]), 0.85, 0.01)
    assert got == pytest.approx([0.063044, 0.079788, 0.0], abs=1e-6)
    assert got[0] == pytest.approx(0.04 * normal.cdf(0.4) + 0.1 * normal.pdf(0.4))


@given(mean=st.floats(-1, 2), deviation=st.floats(0, 1), best=st.floats(0, 1))
def test_expected_improvement_is_never_negative_and_falls_with_exploration(mean, deviation, best):
    bold, shy = (
        expected_improvement(np.array([mean]), np.array([deviation]), best, xi)[0] for xi in (0.0, 0.05)
    )
    assert 0 <= shy <= bold + 1e-12


def sampled(base, sizes, latency):
    points = features(np.array(sizes), base)
    scores = np.array([score(size, base, latency(size), 0.2, 0.8) for size in sizes])
    return fit_scores(points, scores, 0.8), float(scores.max())


def anything(size):
    return True


def queue_latency(size):
    return sum(0.01 / max(0.02, 1 - 1.9 / count) for count in size)


def test_a_small_lattice_is_searched_whole():
    base, space = (2, 2), SearchSpace((2, 2), 12)
    assert space.count <= MOST_ENUMERATED
    model, best = sampled(base, [(2, 2), (12, 12), (12, 2), (2, 12)], queue_latency)
    found = recommend(model, base, space, best, 0.0, seed=1, is_open=anything)
    assert found is not None
    every = np.array(list(itertools.product(range(2, 13), repeat=2)))
    gains = expected_improvement(*model.predict(features(every, base)), best, 0.0)
    assert found.improvement == pytest.approx(gains.max())


def test_only_what_is_open_to_trial_is_recommended():
    base, space = (2,), SearchSpace((2,), 4)
    model, best = sampled(base, [(2,), (4,)], queue_latency)
    found = recommend(model, base, space, best, 0.0, seed=1, is_open=lambda size: size == (3,))
    assert found is not None
    assert found.size == (3,)
    assert recommend(model, base, space, best, 0.0, seed=1, is_open=lambda size: False) is None


@given(
    base=st.lists(st.integers(1, 30), min_size=1, max_size=8).map(tuple),
    room=st.integers(0, 60),
    seed=st.integers(0, 1000),
)
def test_recommendations_stay_in_the_lattice_and_repeat_for_a_seed(base, room, seed):
    space = SearchSpace(base, max(base) + room)
    model, best = sampled(base, list(bootstrap_sizes(space, 3)), queue_latency)
    found = recommend(model, base, space, best, 0.0, seed, anything)
    assert found is not None
    assert all(low <= count <= space.most for low, count in zip(base, found.size, strict=True))
    assert found == recommend(model, base, space, best, 0.0, seed, anything)


def test_a_huge_lattice_is_not_enumerated():
    base = (10,) * 12
    space = SearchSpace(base, 100_000)
    assert space.count > 1e50
    model, best = sampled(base, list(bootstrap_sizes(space, 3)), queue_latency)
    assert recommend(model, base, space, best, 0.0, seed=1, is_open=anything) is not None


def test_the_known_part_of_the_score_needs_no_learning():
    # latency is met everywhere, so that only resources tell sizes apart: 0.8 + 0.2·ratio, also far off
    base = (2, 3)
    model, _ = sampled(base, [(2, 3), (8, 8)], lambda size: 0.1)
    points = features(np.array([(2, 12), (20, 3)]), base)
    expected = [0.8 + 0.2 * allocation_ratio(size, base) for size in ((2, 12), (20, 3))]
    assert model.predict(points)[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("latency_target_seconds", 0.0),
        ("latency_target_seconds", math.nan),
        ("least_parallelism", 0),
        ("most_parallelism", 0),
        ("search_factor", 0.5),
        ("latency_weight", 1.1),
        ("over_allocation", -0.1),
        ("exploration", -0.1),
        ("uniform_samples", 1),
        ("switch_after", 0),
        ("changes_per_hour", 1),
        ("most_samples", 0),
        ("rate_tolerance", 0.0),
        ("sample_windows", 0),
        ("patience_windows", 0),
        ("throughput_steps", 0),
        ("seed", -1),
    ],
)
def test_settings_out_of_range_are_named(key, value):
    with pytest.raises(BadSettings, match=key):
        AutraScaleSettings(**{key: value})


def test_the_least_may_not_exceed_the_most():
    with pytest.raises(BadSettings, match="least_parallelism"):
        AutraScaleSettings(least_parallelism=5, most_parallelism=4)


class TestReadings:
    def test_the_age_of_a_backlog_that_is_being_read_is_not_the_latency_of_a_size(self):
        readings = Readings((3, 4))
        found = [readings.is_draining(seconds, 0.2) for seconds in (50, 30, 10, 0, 0, 0.1)]
        assert found == [True, True, True, True, False, False]
        waiting = Readings((3, 4))
        assert [waiting.is_draining(seconds, 0.2) for seconds in (5, 5, 5.2, 5)] == [True, False, False, True]

    def test_what_came_before_a_steep_fall_is_no_sample(self):
        readings = Readings((3, 4))
        for seconds in (9.0, 3.0, 0.19, 0.17, 0.18):
            readings.add_latency(seconds)
        assert readings.latencies == [0.19, 0.17, 0.18]
