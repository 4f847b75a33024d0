"""The formulas of AuTraScale against values worked out by hand, most of them from tables II and III."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.autrascale.score import (
    LENGTHS,
    MOST_ENUMERATED,
    NOISES,
    SearchSpace,
    allocation_ratio,
    bootstrap_sizes,
    condition,
    correlate,
    fit_process,
    fit_scores,
    measure_improvement,
    recommend,
    scale_sizes,
    score_size,
)
from penstock.decide.autrascale.settings import AutraScaleSettings
from penstock.decide.autrascale.throughput import Readings
from penstock.errors import BadInput

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
    assert score_size(size, base, latency, target, 0.8) == pytest.approx(published, abs=6e-5)


def test_a_missed_target_costs_its_share():
    # 0.6·(0.2/0.3) + 0.4·((2/4 + 5/10)/2) = 0.4 + 0.2
    assert score_size((4, 10), (2, 5), 0.3, 0.2, 0.6) == pytest.approx(0.6)


@given(
    base=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    extra=st.integers(0, 30),
    latency=st.floats(0.001, 100),
    weight=st.floats(0, 1),
)
def test_scores_lie_between_0_and_1_and_more_of_the_same_never_scores_better(base, extra, latency, weight):
    base = tuple(base)
    more = tuple(count + extra for count in base)
    value = score_size(more, base, latency, 1.0, weight)
    assert 0 <= value <= 1 + 1e-12
    assert value <= score_size(base, base, latency, 1.0, weight) + 1e-12


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
    got = measure_improvement(np.array([0.9, 0.86, 0.99]), np.array([0.1, 0.2, 0.0]), 0.85, 0.01)
    assert got == pytest.approx([0.063044, 0.079788, 0.0], abs=1e-6)
    assert got[0] == pytest.approx(0.04 * normal.cdf(0.4) + 0.1 * normal.pdf(0.4))


@given(mean=st.floats(-1, 2), deviation=st.floats(0, 1), best=st.floats(0, 1))
def test_expected_improvement_is_never_negative_and_falls_with_exploration(mean, deviation, best):
    bold, shy = (
        measure_improvement(np.array([mean]), np.array([deviation]), best, xi)[0] for xi in (0.0, 0.05)
    )
    assert 0 <= shy <= bold + 1e-12


def sampled(base, sizes, latency):
    points = scale_sizes(np.array(sizes), base)
    scores = np.array([score_size(size, base, latency(size), 0.2, 0.8) for size in sizes])
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
    gains = measure_improvement(*model.predict(scale_sizes(every, base)), best, 0.0)
    assert found.improvement == pytest.approx(gains.max())


def test_only_what_is_open_to_trial_is_recommended():
    base, space = (2,), SearchSpace((2,), 4)
    model, best = sampled(base, [(2,), (4,)], queue_latency)
    found = recommend(model, base, space, best, 0.0, seed=1, is_open=lambda size: size == (3,))
    assert found is not None and found.size == (3,)
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
    points = scale_sizes(np.array([(2, 12), (20, 3)]), base)
    expected = [0.8 + 0.2 * allocation_ratio(size, base) for size in ((2, 12), (20, 3))]
    assert model.predict(points)[0] == pytest.approx(expected, abs=1e-9)


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


def matern(one, other, lengths):
    """Matérn 5/2 as textbooks write it, for one pair of points."""
    distance = math.sqrt(
        sum(((a - b) / length) ** 2 for a, b, length in zip(one, other, lengths, strict=True))
    )
    scaled = math.sqrt(5) * distance
    return (1 + scaled + scaled**2 / 3) * math.exp(-scaled)


def textbook(inputs, values, points, lengths, noise, variance):
    """By explicit inverses: mean m + kᵀ(K + n²I)⁻¹(y − m), variance k(x,x) − kᵀ(K + n²I)⁻¹k."""
    mean = values.mean()
    kernel = np.array([[variance * matern(a, b, lengths) for b in inputs] for a in inputs])
    inverse = np.linalg.inv(kernel + noise * variance * np.eye(len(values)))
    cross = np.array([[variance * matern(a, b, lengths) for b in inputs] for a in points])
    means = mean + cross @ inverse @ (values - mean)
    variances = variance - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    return means, np.sqrt(np.maximum(variances, 0))


def samples(count=8, columns=3, seed=1):
    random = np.random.default_rng(seed)
    inputs = random.uniform(0.1, 1.0, (count, columns))
    return inputs, np.sin(3 * inputs[:, 0]) + 0.2 * inputs[:, -1]


def test_the_kernel_has_the_values_of_its_definition():
    # distance 1 at length 1: (1 + √5 + 5/3)·e^(−√5) = 4.9027·0.10688 = 0.5240
    one = correlate(np.array([[0.0]]), np.array([[1.0], [0.0]]), np.array([1.0]))
    assert one[0] == pytest.approx([0.52399, 1.0], abs=1e-5)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("columns", [1, 3])
def test_the_posterior_is_that_of_the_textbook(noise, columns):
    inputs, values = samples(columns=columns)
    points = np.random.default_rng(2).uniform(0.0, 1.2, (5, columns))
    lengths = np.linspace(0.3, 0.9, columns)
    model = condition(inputs, values, lengths, noise, variance=0.7)
    mean, deviation = model.predict(points)
    expected_mean, expected_deviation = textbook(inputs, values, points, lengths, noise, 0.7)
    assert mean == pytest.approx(expected_mean, rel=1e-7)
    assert deviation == pytest.approx(expected_deviation, rel=1e-5, abs=1e-7)


def test_the_marginal_likelihood_is_that_of_a_normal_distribution():
    inputs, values = samples(count=5, columns=1)
    model = condition(inputs, values, np.array([0.5]), 0.01, variance=0.3)
    kernel = np.array([[0.3 * matern(a, b, [0.5]) for b in inputs] for a in inputs]) + 0.003 * np.eye(5)
    centred = values - values.mean()
    expected = -0.5 * (
        centred @ np.linalg.inv(kernel) @ centred + np.log(np.linalg.det(kernel)) + 5 * np.log(2 * np.pi)
    )
    assert model.log_likelihood == pytest.approx(expected)


def test_the_fit_is_at_least_as_likely_as_every_point_of_the_grid():
    inputs, values = samples()
    chosen = fit_process(inputs, values).log_likelihood
    grid = [
        condition(inputs, values, np.full(3, length), noise).log_likelihood
        for length in LENGTHS
        for noise in NOISES
    ]
    assert chosen >= max(grid) - 1e-9


def test_the_variance_chosen_is_the_most_likely_one():
    inputs, values = samples()
    best = condition(inputs, values, np.full(3, 0.6), 0.01)
    for factor in (0.8, 1.25):
        other = condition(inputs, values, np.full(3, 0.6), 0.01, variance=best.variance * factor)
        assert other.log_likelihood < best.log_likelihood


def test_an_input_that_does_not_matter_gets_a_longer_scale():
    inputs = np.random.default_rng(3).uniform(0, 1, (14, 2))
    model = fit_process(inputs, np.sin(6 * inputs[:, 0]))
    assert model.lengths[1] > model.lengths[0]


def test_it_follows_a_smooth_function_between_its_samples():
    inputs = np.linspace(0, 1, 9)[:, None]
    model = fit_process(inputs, np.sin(4 * inputs[:, 0]))
    points = np.linspace(0.05, 0.95, 7)[:, None]
    mean, deviation = model.predict(points)
    assert mean == pytest.approx(np.sin(4 * points[:, 0]), abs=0.02)
    assert model.predict(np.array([[3.0]]))[1][0] > deviation.max()


def test_a_single_sample_and_equal_samples_are_no_trouble():
    alone = fit_process(np.array([[0.5, 0.5]]), np.array([0.7]))
    assert alone.predict(np.array([[0.1, 0.9]]))[0] == pytest.approx([0.7])
    alike = fit_process(np.array([[0.1], [0.5], [0.5]]), np.array([0.7, 0.7, 0.7]))
    assert alike.predict(np.array([[0.9]]))[0] == pytest.approx([0.7])
    assert alike.predict(np.array([[0.9]]))[1][0] > 0


@pytest.mark.parametrize(
    ("inputs", "values"),
    [
        (np.zeros((0, 2)), np.zeros(0)),
        (np.zeros((2, 1)), np.zeros(3)),
        (np.zeros(3), np.zeros(3)),
        (np.array([[math.nan]]), np.zeros(1)),
        (np.zeros((1, 1)), np.array([math.inf])),
    ],
)
def test_what_cannot_be_fitted_is_refused(inputs, values):
    with pytest.raises(BadInput):
        fit_process(inputs, values)


@given(count=st.integers(1, 12), columns=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_predictions_are_finite_and_never_less_certain_than_the_prior(count, columns, seed):
    random = np.random.default_rng(seed)
    model = fit_process(random.uniform(0, 1, (count, columns)), random.uniform(0, 1, count))
    mean, deviation = model.predict(random.uniform(0, 1, (20, columns)))
    assert np.isfinite(mean).all()
    assert (deviation >= 0).all()
    assert (deviation <= math.sqrt(model.variance) + 1e-12).all()
