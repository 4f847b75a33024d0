from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.gaussian import LENGTHS, NOISES, condition, correlation, fit
from penstock.errors import BadInput


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
    one = correlation(np.array([[0.0]]), np.array([[1.0], [0.0]]), np.array([1.0]))
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
    chosen = fit(inputs, values).log_likelihood
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
    model = fit(inputs, np.sin(6 * inputs[:, 0]))
    assert model.lengths[1] > model.lengths[0]


def test_it_follows_a_smooth_function_between_its_samples():
    inputs = np.linspace(0, 1, 9)[:, None]
    model = fit(inputs, np.sin(4 * inputs[:, 0]))
    points = np.linspace(0.05, 0.95, 7)[:, None]
    mean, deviation = model.predict(points)
    assert mean == pytest.approx(np.sin(4 * points[:, 0]), abs=0.02)
    assert model.predict(np.array([[3.0]]))[1][0] > deviation.max()


def test_a_single_sample_and_equal_samples_are_no_trouble():
    alone = fit(np.array([[0.5, 0.5]]), np.array([0.7]))
    assert alone.predict(np.array([[0.1, 0.9]]))[0] == pytest.approx([0.7])
    alike = fit(np.array([[0.1], [0.5], [0.5]]), np.array([0.7, 0.7, 0.7]))
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
        fit(inputs, values)


@given(count=st.integers(1, 12), columns=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_predictions_are_finite_and_never_less_certain_than_the_prior(count, columns, seed):
    random = np.random.default_rng(seed)
    model = fit(random.uniform(0, 1, (count, columns)), random.uniform(0, 1, count))
    mean, deviation = model.predict(random.uniform(0, 1, (20, columns)))
    assert np.isfinite(mean).all()
    assert (deviation >= 0).all()
    assert (deviation <= math.sqrt(model.variance) + 1e-12).all()
