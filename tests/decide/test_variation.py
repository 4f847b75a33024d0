"""The irregularity of arrivals and services, found again in windows that only count."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.decide.variation import FEWEST_SAMPLES, MOST_VARIATION, UNKNOWN, Variation

RANDOM_SEED = 11


def watched(gaps, services, rate=200.0, windows=400, seconds=10.0, kept=400):
    """Windows over a random stream: times between arrivals and service times drawn with mean one."""
    random = np.random.default_rng(RANDOM_SEED)
    arrivals = np.cumsum(gaps(random, int(1.2 * rate * seconds * windows))) / rate
    counts, _ = np.histogram(arrivals, bins=windows, range=(0.0, seconds * windows))
    variation = Variation(windows_kept=kept)
    for count in counts.tolist():
        useful = float(services(random, count).sum()) * 0.003
        variation.remember(count / seconds, seconds, [(float(count), useful)])
    return variation


def constant(random, count):
    return np.ones(count)


def exponential(random, count):
    return random.exponential(1.0, count)


def erlang_four(random, count):
    return random.gamma(4, 1 / 4, count)


@pytest.mark.parametrize(("drawn", "squared"), [(constant, 0.0), (erlang_four, 0.25), (exponential, 1.0)])
def test_known_distributions_are_found_again(drawn, squared):
    variation = watched(drawn, drawn)
    # a median of four hundred squares is good to a fifth
    assert variation.of_arrivals == pytest.approx(squared, rel=0.3, abs=0.01)
    assert variation.of_services == pytest.approx(squared, rel=0.3, abs=0.01)


def test_until_there_is_evidence_poisson_is_assumed():
    variation = Variation()
    assert (variation.of_arrivals, variation.of_services) == (UNKNOWN, UNKNOWN)
    for _ in range(FEWEST_SAMPLES - 1):
        variation.remember(5.0, 10.0, [(50.0, 1.0)])
    assert (variation.of_arrivals, variation.of_services) == (UNKNOWN, UNKNOWN)
    for _ in range(2):
        variation.remember(5.0, 10.0, [(50.0, 1.0)])
    assert (variation.of_arrivals, variation.of_services) == (0.0, 0.0)


def test_a_step_of_the_load_is_not_irregularity():
    variation = Variation()
    for rate in [10.0] * 6 + [1000.0] * 6:
        variation.remember(rate, 10.0, [(rate, 1.0)])
    assert variation.of_arrivals == 0.0


def test_old_windows_are_forgotten():
    variation = Variation(windows_kept=6)
    for rate in (1.0, 9.0, 1.0, 9.0, 1.0, 9.0):
        variation.remember(rate, 10.0, [(rate * 10, rate)])
    assert variation.of_arrivals > 1
    for _ in range(6):
        variation.remember(5.0, 10.0, [(50.0, 5.0)])
    assert variation.of_arrivals == 0.0


def test_what_is_beyond_all_measure_is_bounded():
    variation = Variation()
    for rate in (1e6, 2e6) * 5:
        variation.remember(rate, 10.0, [(rate, rate), (rate, 3 * rate)])
    assert (variation.of_arrivals, variation.of_services) == (MOST_VARIATION, MOST_VARIATION)


def test_idle_windows_say_nothing():
    variation = Variation()
    for _ in range(10):
        variation.remember(0.0, 10.0, [(0.0, 0.0)])
    assert (variation.of_arrivals, variation.of_services) == (UNKNOWN, UNKNOWN)
