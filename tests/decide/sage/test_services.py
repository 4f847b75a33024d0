"""Time-lagged cross-correlation against scipy and known lags."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr

from penstock.decide.sage.services import LEAST_PAIRS, WORSE, correlate, find_strongest
from penstock.errors import BadMetrics

NOTHING = np.full(30, math.nan)


def a_service(**aspects: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    return {"profiles": {**dict.fromkeys(WORSE, NOTHING), **aspects}}


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=10, max_size=40),
    st.integers(0, 5),
)
def test_it_is_pearsons_coefficient_of_the_shifted_series(pairs: list[tuple[float, float]], lag: int):
    cause, effect = np.array(pairs).T
    first, second = cause[: len(cause) - lag], effect[lag:]
    if np.ptp(first) < 1e-3 or np.ptp(second) < 1e-3:
        return
    assert correlate(cause, effect, lag) == pytest.approx(pearsonr(first, second)[0], abs=1e-6)


@pytest.mark.parametrize("lag", [0, 1, 2, 3])
def test_a_known_lag_is_found(lag: int):
    random = np.random.default_rng(lag)
    latency = np.abs(random.normal(1.0, 0.4, 30))
    growth = np.concatenate([np.zeros(lag), latency[: 30 - lag]]) * 1000
    found = find_strongest(growth, a_service(latency_seconds=latency))
    assert found is not None
    assert (found.service, found.aspect, found.lag) == ("profiles", "latency_seconds", lag)
    assert found.coefficient > 0.95
    assert "the latency of profiles" in found.reason


def test_a_drop_of_throughput_explains_growth_and_a_rise_does_not():
    growing = np.array([10.0] * 15 + [500.0] * 15)
    falling = np.array([900.0] * 15 + [200.0] * 15)
    down = find_strongest(growing, a_service(throughput_per_second=falling))
    up = find_strongest(growing, a_service(throughput_per_second=falling[::-1].copy()))
    assert down is not None and down.coefficient > 0.9
    assert up is None or up.coefficient < 0.5


def test_an_unrelated_service_explains_nothing():
    random = np.random.default_rng(3)
    found = find_strongest(
        random.uniform(100, 200, 30), a_service(latency_seconds=random.uniform(0.1, 0.2, 30))
    )
    assert found is not None and found.coefficient < 0.7


def test_silence_and_constant_values_say_nothing():
    growth = np.arange(30.0)
    assert find_strongest(growth, {}) is None
    assert find_strongest(growth, a_service()) is None
    assert find_strongest(growth, a_service(latency_seconds=np.full(30, 0.2))) is None


@pytest.mark.parametrize("lag", [3, 5, 12, 40])
@pytest.mark.parametrize("samples", range(12))
def test_a_lag_for_which_there_are_too_few_samples_yet_says_nothing(samples: int, lag: int):
    rising = np.arange(float(samples)) ** 2
    assert math.isnan(correlate(rising, rising, lag)) or samples - lag >= LEAST_PAIRS


def test_bad_lags_and_lengths_are_refused():
    with pytest.raises(BadMetrics, match="before its cause"):
        correlate(np.ones(9), np.ones(9), -1)
    with pytest.raises(BadMetrics, match="9 samples"):
        correlate(np.ones(9), np.ones(8), 0)
