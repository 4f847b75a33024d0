"""What comes now, per second: exact for what comes evenly, at once after a step, no mean with a pause."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.sources.current_rate import arrival_rate

WINDOW = 10.0
gaps = st.floats(0.01, 120.0)


def evenly(begin, end, gap):
    return np.arange(begin, end, gap)


@given(gaps, st.floats(0, 1))
def test_what_comes_evenly_has_its_exact_rate(gap, phase):
    arrivals = evenly(phase * gap, 60 * gap + 100, gap)
    end = float(arrivals[-1]) + phase * gap
    assert arrival_rate(arrivals, end - WINDOW, end) * gap == pytest.approx(1, rel=0.001)


@given(st.integers(0, 2**32 - 1), st.integers(200, 3000))
def test_what_comes_at_random_is_counted(seed, count):
    """The edges may shift by a moment, which is a twentieth of a window."""
    arrivals = np.sort(np.random.default_rng(seed).uniform(-10 * WINDOW, WINDOW, 11 * count))
    inside = int((arrivals >= 0).sum())
    assert arrival_rate(arrivals, 0.0, WINDOW) == pytest.approx(inside / WINDOW, rel=0.1)


@given(gaps, gaps, st.floats(1, 100_000))
def test_after_a_pause_the_rate_is_right_a_window_later(before, after, idle):
    """However long nothing came, and whatever the rate had been."""
    busy = evenly(-40 * before, 0.0, before)
    begin = idle + max(WINDOW, 5 * before)
    arrivals = np.concatenate((busy, evenly(begin, begin + 40 * after + 3 * WINDOW, after)))
    end = float(arrivals[-1])
    assert arrival_rate(arrivals, end - WINDOW, end) * after == pytest.approx(1, rel=0.001)


@given(gaps, st.floats(1, 10))
def test_what_has_ended_has_no_rate(gap, times):
    arrivals = evenly(0.0, 50 * gap, gap)
    end = float(arrivals[-1]) + times * max(WINDOW, 4 * gap) + 0.01
    assert arrival_rate(arrivals, end - WINDOW, end) == 0


def test_a_return_is_not_averaged_over_the_idle_time():
    """20 a second since 6 s, after a night of nothing."""
    arrivals = np.concatenate((evenly(0, 100, 0.25), evenly(30_000, 30_006, 0.05)))
    assert arrival_rate(arrivals, 29_996, 30_006) == pytest.approx(20, rel=0.01)


def test_a_few_files_at_once_are_no_rate():
    burst = np.full(100, 1000.0) + np.linspace(0, 0.3, 100)
    assert arrival_rate(burst, 991, 1001) <= 100 / WINDOW
    wider = np.full(100, 1000.0) + np.linspace(0, 0.9, 100)
    assert arrival_rate(wider, 991, 1001) <= 2 * 100 / WINDOW


def test_bursts_are_a_mean_from_burst_to_burst():
    """100 files every minute, written within half a second; a window of 10 s sees 100 or none."""
    bursts = np.concatenate([60.0 * n + np.linspace(0, 0.4, 100) for n in range(10)])
    rates = [arrival_rate(bursts, end - WINDOW, end) for end in np.arange(300.0, 540.0, 7.0)]
    assert rates == pytest.approx([100 / 60] * len(rates), rel=0.01)


def test_a_step_up_shows_at_once():
    arrivals = np.concatenate((evenly(0, 100, 0.25), evenly(100, 200, 0.05)))
    assert arrival_rate(arrivals, 95, 105) == pytest.approx(12, rel=0.05)
    assert arrival_rate(arrivals, 100, 110) == pytest.approx(20, rel=0.01)


def test_from_seldom_to_often_within_a_window():
    arrivals = np.concatenate((evenly(0, 1200, 60), evenly(1200, 1300, 0.5)))
    assert arrival_rate(arrivals, 1200, 1210) == pytest.approx(2, rel=0.05)


@given(st.lists(st.floats(0, 1000), max_size=50), st.floats(0, 1000), st.floats(-5, 100))
def test_a_rate_is_finite_and_not_negative(moments, start, seconds):
    rate = arrival_rate(np.sort(np.array(moments, dtype=float)), start, start + seconds)
    assert 0 <= rate < np.inf
