"""Histories without a forecast: little, gapped, doubled, absurd; clocks and days that jump."""

from __future__ import annotations

import math

import pytest

from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.forecast.policy import ForecastPolicy
from penstock.decide.forecast.rates import (
    BINS_PER_SEASON,
    SEASONS_KEPT,
    ForecastSettings,
    SourceForecast,
)
from penstock.decide.goals import Goals
from tests.decide.forecast.test_policy import CHOSEN, fed

DAY = 86400.0
RAMP = [100 + 10 * number for number in range(40)]


def test_too_little_history_is_told_with_what_is_there():
    assert fed(SourceForecast(CHOSEN), RAMP[:3]).aside == "3 of 6 windows seen for a trend"


def test_a_trend_is_not_drawn_across_a_gap():
    source = SourceForecast(CHOSEN)
    assert not fed(source, RAMP).aside
    # an hour without windows, and then another level
    forecast = fed(source, [900.0], start=4000.0)
    assert forecast.aside == "nothing was seen for 3600 s before this window"
    assert forecast.rate == 900.0
    assert "windows seen for a trend" in fed(source, [900.0, 900.0], start=4010.0).aside
    assert not fed(source, [900 + 10 * number for number in range(60)], start=4030.0).aside


def test_windows_that_overlap_count_no_record_twice():
    source = SourceForecast(CHOSEN)
    fed(source, RAMP)
    again = source.take(395.0, 405.0, 900.0)
    assert again.aside == "the window overlaps the last one by 5 s" and again.rate == 900.0
    assert source.take(400.0, 410.0, 500.0).aside == ""


@pytest.mark.parametrize("absurd", [1e308, 1e200, 5e-324])
def test_absurd_rates_give_no_absurd_forecast_and_do_not_spoil_later_ones(absurd):
    source = SourceForecast(ForecastSettings(season=7200.0))
    for number, rate in enumerate([*RAMP, *[absurd] * 20, 0.0, absurd]):
        forecast = source.take(number * 10.0, number * 10.0 + 10.0, rate)
        assert math.isfinite(forecast.rate)
        assert forecast.aside or math.isfinite(forecast.error)
    assert not fed(source, [1000 + 10 * number for number in range(200)], start=620.0).aside


def test_a_clock_that_goes_back_is_followed():
    source = SourceForecast(CHOSEN)
    fed(source, RAMP, start=10_000.0)
    forecast = fed(source, [500.0], start=6_000.0)
    assert forecast.aside == "the clock went back by 4400 s"
    # it was deaf until the old time had come again
    assert not fed(source, [500 + 10 * number for number in range(60)], start=6_010.0).aside


def test_bins_of_a_time_that_has_not_come_yet_are_forgotten():
    source = SourceForecast(ForecastSettings(horizon=60.0, season=7200.0))
    fed(source, [800.0] * 100, start=50_000.0)
    fed(source, [100.0] * 2, start=1_000.0)
    assert [index for index, *_ in source.to_plain()["bins"]] == [202, 204]


def test_a_window_over_which_the_clock_jumped_teaches_nothing():
    source = SourceForecast(CHOSEN)
    fed(source, RAMP)
    # 10 s of records over a window that claims to be a day
    forecast = source.take(400.0, 400.0 + DAY, 0.05)
    assert forecast.aside == "a window of 86400 s among windows of 10 s: the clock jumped"
    assert not fed(source, [500 + 10 * number for number in range(60)], start=410.0 + DAY).aside


@pytest.mark.parametrize("moved", [3600.0, -3600.0])
def test_a_day_of_23_or_25_hours_moves_the_season_by_an_hour(moved):
    """What people do follows their clocks, and windows are in seconds."""
    source = SourceForecast(ForecastSettings(horizon=600.0, season=DAY, trend_windows=3))

    def rate(at):
        shift = moved if at >= 2 * DAY else 0.0
        return 1000 + 600 * math.sin(2 * math.pi * (at - shift) / (DAY / 4))

    forecast, wrong = None, 0
    for number in range(int(2.4 * DAY / 300)):
        start = number * 300.0
        forecast = source.take(start, start + 300.0, rate(start + 150.0))
        if start > 2 * DAY + 7200 and not forecast.aside:
            wrong += abs(forecast.rate - rate(start + 900.0)) > 0.1 * rate(start + 900.0)
    assert wrong == 0
    assert "season" in forecast.way and "an hour" in forecast.way
    assert not forecast.aside


@pytest.mark.parametrize(
    ("bins", "says"),
    [
        ([[1, 5.0, 1], [1, 900.0, 1]], "a time of the season is there twice"),
        ([[1e400, 5.0, 1]], "cannot convert float infinity to integer"),
        ([[math.nan, 5.0, 1]], "cannot convert float NaN to integer"),
        ([[1]], "not enough values"),
        (3, "not subscriptable"),
    ],
)
def test_a_season_that_makes_no_sense_is_not_taken_up(bins, says):
    policy = ForecastPolicy(Ds2Policy(Goals()), ForecastSettings())
    (useless,) = policy.recall({"rates of a/b": {"bin_seconds": 60.0, "bins": bins}})
    assert says in useless
    assert policy.learned()["rates of a/b"]["bins"] == []


def test_a_season_without_end_is_cut():
    source, most = SourceForecast(ForecastSettings()), SEASONS_KEPT * BINS_PER_SEASON
    source.recall({"bin_seconds": 60.0, "bins": [[index, 5.0, 1] for index in range(3 * most)]})
    kept = source.to_plain()["bins"]
    assert len(kept) == most and kept[-1][0] == 3 * most - 1
