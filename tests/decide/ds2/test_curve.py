"""Bounds by a curve through the sizes seen; they never break what DS2 guarantees."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.dataflow.propagation import round_up
from penstock.decide.ds2.capacity import DUST, Point
from penstock.decide.ds2.curve import CapacityCurve

MOST = 200
EXACTLY = DUST


def usl(alpha, beta=0.0):
    """n / (1 + α(n − 1) + βn(n − 1)), held at its peak from there on."""
    instances = np.arange(1, MOST + 1, dtype=np.float64)
    others = instances - 1
    return np.maximum.accumulate(instances / (1 + alpha * others + beta * instances * others)) * 100


def power(exponent):
    return np.arange(1, MOST + 1, dtype=np.float64) ** exponent * 100


laws = st.one_of(
    st.builds(usl, st.floats(0, 0.3), st.sampled_from([0.0, 1e-5, 1e-4, 1e-3])),
    st.builds(power, st.floats(0.2, 1.0)),
)
concave = st.lists(st.floats(0, 100, width=32), min_size=MOST, max_size=MOST).map(
    lambda gains: np.cumsum([101.0, *sorted(gains, reverse=True)])[:MOST]
)
truths = st.one_of(laws, concave)
sizes_seen = st.lists(st.integers(1, 60), min_size=1, max_size=8, unique=True)


def seen(truth, sizes, noise=0.0, seed=0):
    random = np.random.default_rng(seed)
    factors = 1 + noise * random.standard_normal((len(sizes), 64)).mean(axis=1)
    weight = 64.0 if noise else 1.0
    return [Point(n, float(truth[n - 1] * f), weight) for n, f in zip(sizes, factors, strict=True)]


def least(truth, needed):
    enough = np.flatnonzero(truth >= needed * (1 - 1e-9))
    return int(enough[0]) + 1 if len(enough) else None


def linear(truth, held, needed):
    return round_up(needed * held / truth[held - 1])


@settings(max_examples=100, deadline=None)
@given(truths, sizes_seen, st.floats(0.05, 1.0), st.data())
def test_growth_never_overshoots_and_never_asks_for_less_than_ds2(truth, sizes, share, data):
    held = data.draw(st.sampled_from(sizes))
    needed = float(truth[-1]) * share
    plain = linear(truth, held, needed)
    assume(plain > held)
    wanted = CapacityCurve(seen(truth, sizes), EXACTLY).size_to_grow_to(needed, plain, MOST)
    assert plain <= wanted <= least(truth, needed)


@settings(max_examples=100, deadline=None)
@given(truths, sizes_seen, st.floats(0.001, 1.0), st.data())
def test_a_reduction_never_undershoots_and_never_keeps_more_than_ds2(truth, sizes, share, data):
    held = data.draw(st.sampled_from(sizes))
    needed = float(truth[-1]) * share
    plain = linear(truth, held, needed)
    assume(plain < held)
    wanted = CapacityCurve(seen(truth, sizes), EXACTLY).size_to_shrink_to(needed, plain)
    assert truth[wanted - 1] >= needed * (1 - 1e-5)
    assert wanted <= plain


@settings(max_examples=100, deadline=None)
@given(truths, sizes_seen)
def test_the_truth_lies_within_the_bounds(truth, sizes):
    bounds = CapacityCurve(seen(truth, sizes), EXACTLY).bounds(1, MOST)
    assert (bounds.low <= truth * (1 + 1e-5)).all()
    assert (bounds.high >= truth * (1 - 1e-5)).all()


@settings(max_examples=50, deadline=None)
@given(laws, st.lists(st.integers(1, 60), min_size=3, max_size=8, unique=True), st.integers(0, 10_000))
def test_noise_widens_the_bounds_and_the_truth_stays_near_them(truth, sizes, seed):
    noisy = CapacityCurve(seen(truth, sizes, 0.05, seed), 0.05).bounds(1, 60)
    # 5 % of noise in a mean of 64 readings is 0.6 %: five of that, on both sides
    assert (noisy.low <= truth[:60] * 1.035).all()
    held = np.array(sizes) - 1
    assert (noisy.high[held] >= truth[held] * 0.965).all()


@pytest.mark.parametrize(("alpha", "beta"), [(0.02, 0.0), (0.05, 0.0), (0.02, 0.0002)])
def test_four_sizes_are_enough_to_grow_in_one_step(alpha, beta):
    truth = usl(alpha, beta)
    needed = float(truth[39])
    curve = CapacityCurve(seen(truth, [6, 9, 14, 20]), EXACTLY)
    plain = linear(truth, 20, needed)
    assert plain < 40
    assert curve.size_to_grow_to(needed, plain, MOST) == least(truth, needed) == 40


def test_a_size_that_was_seen_is_found_again_in_one_step():
    truth = usl(0.05)
    curve = CapacityCurve(seen(truth, [8, 16, 30]), EXACTLY)
    needed = float(truth[29])
    assert linear(truth, 8, needed) == 17
    assert curve.size_to_grow_to(needed, 17, MOST) == 30


def test_one_size_says_no_more_than_ds2():
    truth = usl(0.05)
    needed = float(truth[29])
    curve = CapacityCurve(seen(truth, [8]), EXACTLY)
    assert curve.size_to_grow_to(needed, linear(truth, 8, needed), MOST) == linear(truth, 8, needed)


def test_where_no_size_is_enough_it_asks_for_nearly_all_that_can_be_had():
    truth = usl(0.2)  # five times one instance at the very most
    curve = CapacityCurve(seen(truth, [2, 4, 8, 16]), EXACTLY)
    wanted = curve.size_to_grow_to(float(truth[-1]) * 2, 20, 60)
    assert truth[wanted - 1] >= 0.97 * truth[59]
    assert wanted < 60


def test_evidence_that_fits_no_law_still_bounds_what_is_between():
    crooked = [Point(4, 400.0, 1.0), Point(8, 700.0, 1.0), Point(10, 840.0, 1.0), Point(20, 900.0, 1.0)]
    bounds = CapacityCurve(crooked, EXACTLY).bounds(9, 9)
    # between 8 and 10 the chord gives 770 at least, the chord of 4 and 8 gives 775 at most
    assert math.isclose(bounds.low[0], 770.0, rel_tol=1e-5)
    assert math.isclose(bounds.high[0], 775.0, rel_tol=1e-5)
