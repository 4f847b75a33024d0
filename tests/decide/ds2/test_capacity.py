"""A level is a mean over the readings that agree, and no more of them."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.decide.ds2.capacity import MOST_READINGS, SteadyLevel


def fed(readings):
    level = SteadyLevel()
    for reading in readings:
        level.add(float(reading))
    return level


def noisy(around, share, count, seed=0):
    return around * (1 + share * np.random.default_rng(seed).standard_normal(count))


def test_the_first_readings_stand_alone_since_their_noise_is_unknown():
    level = fed([100, 120])
    assert (level.mean, level.count, level.noise) == (120.0, 1, None)
    assert level.error == 0.0


def test_without_noise_a_step_is_followed_at_once():
    level = fed([100] * 10 + [101])
    assert (level.mean, level.count) == (101.0, 1)


def test_noise_is_estimated_and_averaged_away():
    level = fed(noisy(100.0, 0.1, 200))
    assert level.noise == pytest.approx(0.1, rel=0.3)
    assert level.count == MOST_READINGS
    assert level.mean == pytest.approx(100.0, rel=0.08)
    assert level.error == pytest.approx(0.1 / 4, rel=0.3)


def test_a_step_well_above_the_noise_begins_a_new_level():
    level = fed([*noisy(100.0, 0.05, 50), 150.0])
    assert (level.mean, level.count) == (150.0, 1)


def test_a_step_within_the_noise_is_noticed_after_a_few_readings():
    level = fed([*noisy(100.0, 0.05, 50), *noisy(115.0, 0.05, 10, seed=1)])
    assert level.mean == pytest.approx(115.0, rel=0.05)


def test_a_drift_is_followed():
    level = fed(100.0 * 1.01**step for step in range(100))
    assert level.mean == pytest.approx(100.0 * 1.01**99, rel=0.03)


def test_where_drift_is_expected_it_is_not_taken_for_noise():
    level = SteadyLevel(drifts=True)
    for step in range(100):
        level.add(100.0 + step)
    assert level.mean == 199.0
    assert level.error == 0.0


def test_noise_is_estimated_the_same_where_drift_is_expected():
    level = SteadyLevel(drifts=True)
    for reading in noisy(100.0, 0.1, 200):
        level.add(float(reading))
    assert level.noise == pytest.approx(0.1, rel=0.35)
    assert level.count == MOST_READINGS


def test_noise_survives_a_restart_of_the_level():
    level = fed(noisy(100.0, 0.05, 50))
    before = level.noise
    level.restart()
    assert (level.count, level.noise) == (0, before)
    level.add(500.0)
    assert level.mean == 500.0


def test_expected_noise_counts_from_the_first_reading():
    level = SteadyLevel()
    level.expect(0.05)
    assert level.noise == pytest.approx(0.05)


def test_numbers_beyond_all_measure_do_not_spoil_it():
    level = fed([1e308] * 5 + [10.0] * 40)
    assert level.mean == 10.0


def test_nothing_is_a_level_too():
    assert fed([0.0] * 5).mean == 0.0
    assert fed([0.0] * 5 + [10.0]).mean == 10.0


def presuming(readings, presumed=0.1):
    level = SteadyLevel(drifts=True, presumed_noise=presumed)
    for reading in readings:
        level.add(float(reading))
    return level


def test_early_readings_that_differ_are_pooled_if_the_presumed_noise_explains_them():
    level = presuming([100, 120])
    assert (level.mean, level.count) == (110.0, 2)
    assert level.noise == pytest.approx(0.1)
    assert level.error > 0


def test_an_early_step_beyond_the_presumed_noise_is_followed_at_once():
    assert presuming([100, 100, 250]).mean == 250.0


def test_early_readings_that_agree_need_no_presumption():
    level = presuming([100, 100, 100])
    assert (level.noise, level.error, level.mean) == (None, 0.0, 100.0)


def test_a_presumption_gives_way_to_what_is_seen():
    assert presuming([100, 101, *[100] * 20]).noise < 1e-6
    assert presuming(noisy(100.0, 0.02, 60)).noise == pytest.approx(0.02, rel=0.5)


def test_noise_that_looks_small_by_luck_seldom_makes_a_step():
    """By neighbouring readings alone, one in eight of these steady loads would begin a new level."""
    mistaken = 0
    for seed in range(300):
        level, counts = SteadyLevel(drifts=True), []
        for reading in noisy(100.0, 0.1, 80, seed):
            level.add(float(reading))
            counts.append(level.count)
        mistaken += min(counts[16:]) <= 3
    assert mistaken <= 0.08 * 300
