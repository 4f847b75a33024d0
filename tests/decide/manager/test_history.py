"""Keeping up or falling behind, judged by windows in a row."""

from __future__ import annotations

import pytest

from penstock.decide.manager.history import find_rate_ratio, is_falling_behind, mean_offered, measure_load
from tests.decide.situations import window


def history(*loads: dict):
    return [measure_load(window(100.0 + 10 * number, **load)) for number, load in enumerate(loads)]


def test_a_backlog_that_grows_as_rates_say_is_falling_behind():
    # 1000 offered and 800 read for 10 s leave 2000 more
    assert is_falling_behind(
        history({"observed": 800.0, "backlog": 0.0}, {"observed": 800.0, "backlog": 2000.0})
    )


@pytest.mark.parametrize(
    "loads",
    [
        [{"observed": 800.0, "backlog": 2000.0}],  # one window shows no trend
        [{"backlog": 5000.0}, {"backlog": 5000.0}],  # a backlog that stands
        [{"backlog": 5000.0}, {"backlog": 9000.0}],  # sampled late: all that was offered was read
        [{"observed": 800.0, "backlog": 100.0}, {"observed": 800.0, "backlog": 500.0}],  # within the noise
        [{"observed": 800.0, "backlog": 9000.0}, {"observed": 1500.0, "backlog": 4000.0}],  # being worked off
        [{"offered": 0.0, "observed": 0.0}, {"offered": 0.0, "observed": 0.0}],
        [{"busy": 1.4}, {"busy": 0.9}],  # one slow batch
        [{"offered": float("nan")}, {"offered": float("nan")}],
    ],
)
def test_what_is_not_falling_behind(loads):
    assert not is_falling_behind(history(*loads))


def test_batches_that_all_overrun_are_falling_behind():
    assert is_falling_behind(history({"busy": 1.1}, {"busy": 1.2}))
    assert not is_falling_behind(history({"busy": 1.1}, {"busy": 1.2}), by=0.2)


def test_ratio_is_taken_over_all_windows():
    assert find_rate_ratio(history({"observed": 400.0}, {"observed": 600.0})) == pytest.approx(2.0)
    assert find_rate_ratio(history({"observed": 0.0})) == 1.0
    assert find_rate_ratio([]) == 1.0


def test_mean_of_nothing_is_nothing():
    assert mean_offered([]) == 0.0
