"""Two sides in alternating blocks: what drift, noise and a disturbed block do to the ratio."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.paired import Ratio, order, ratio_of


def test_the_order_is_abba_baab():
    assert "".join("AB"[not first] for first in order(16)) == "ABBABAABBAABABBA"


@given(st.floats(0.5, 2.0), st.floats(-0.01, 0.01), st.floats(-1e-4, 1e-4))
def test_a_drift_falls_on_both_sides_alike(ratio, steady, bent):
    first = order(32)
    drift = [math.exp(steady * n + bent * n * n) for n in range(32)]
    figures = [height * (ratio if ours else 1.0) for height, ours in zip(drift, first, strict=True)]
    # a bend of 1e-4 a block moves single fours by some 4e-4, either way
    assert ratio_of(first, figures).value == pytest.approx(ratio, rel=1e-3)


def test_equal_blocks_have_an_interval_of_no_width():
    found = ratio_of(order(16), [3.0] * 16)
    assert (found.value, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))


def test_one_disturbed_block_hardly_moves_the_ratio():
    figures = [100.0] * 24
    figures[5] = 20.0
    assert ratio_of(order(24), figures).value == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("truth", [0.95, 0.995, 1.0])
def test_the_interval_holds_the_truth_as_often_as_it_says(truth):
    random, first, hits = np.random.default_rng(3), np.array(order(32)), 0
    for _ in range(60):
        noise = np.exp(0.03 * random.standard_normal(32))
        found = ratio_of(list(first), list(np.where(first, truth, 1.0) * noise))
        hits += found.low <= truth <= found.high
    # 95 % nominal; resampling eight fours is a little too sure of itself
    assert hits >= 48


def test_too_few_blocks_have_no_interval_and_are_not_judged():
    found = ratio_of(order(4), [1.0, 1.0, 1.0, 1.0])
    assert found.value == 1.0
    assert math.isnan(found.low) and math.isnan(found.high)
    assert found.judged(least=0.99) is None


@pytest.mark.parametrize(
    ("low", "high", "judged"),
    [(0.992, 1.004, 1.0), (0.97, 0.985, 1.0), (0.985, 1.004, None), (0.97, 1.02, None)],
)
def test_a_ratio_is_judged_when_its_whole_interval_is_on_one_side(low, high, judged):
    assert Ratio(1.0, low, high).judged(least=0.99) == judged
    assert Ratio(1.0, 2 - high, 2 - low).judged(most=1.01) == judged


@pytest.mark.parametrize("missing", [0.0, math.nan])
def test_what_was_not_measured_has_no_ratio(missing):
    found = ratio_of(order(16), [missing, *[1.0] * 15])
    assert math.isnan(found.value)
    assert found.judged(least=0.99) is None
