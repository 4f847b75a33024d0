"""The forecast: trend and season, when it steps aside, and that the inner policy is asked about then."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import SourceRate
from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.forecast.policy import ForecastPolicy
from penstock.decide.forecast.rates import SEASON, TREND, ForecastSettings, SourceForecast
from penstock.decide.goals import Goals
from penstock.decide.policy import Hold, Learner, Scale
from penstock.decide.registry import make_policy, policy_entry
from penstock.errors import BadSettings
from penstock.settings.model import Settings
from tests.decide.built import built
from tests.decide.pipelines import Pipeline

FULL = Goals(utilisation=1.0)
CHOSEN = ForecastSettings(horizon=60.0, season=None)


def fed(source, rates, start=0.0, interval=10.0):
    forecast = None
    for number, rate in enumerate(rates):
        forecast = source.take(start + number * interval, start + (number + 1) * interval, float(rate))
    return forecast


def test_a_ramp_is_followed_to_the_end_of_the_horizon():
    # rates of window middles: 100 + 1/s · (middle); 40 windows end at 400 s, 60 s later the rate is 560
    forecast = fed(SourceForecast(CHOSEN), [105 + 10 * number for number in range(40)])
    assert forecast.way == TREND
    assert not forecast.aside
    assert forecast.rate == pytest.approx(560.0)


def test_a_steady_rate_needs_no_forecast():
    random = np.random.default_rng(1)
    forecast = fed(SourceForecast(CHOSEN), 100 * (1 + 0.05 * random.standard_normal(200)))
    assert "steady" in forecast.aside
    assert forecast.rate == pytest.approx(100.0, rel=0.25)


def test_it_steps_aside_when_its_recent_error_is_large():
    rates = [100 if number % 12 < 6 else 400 for number in range(120)]
    forecast = fed(SourceForecast(CHOSEN), rates)
    assert "recent error of" in forecast.aside
    assert forecast.rate == rates[-1]


def test_it_must_prove_itself_first():
    forecast = fed(SourceForecast(CHOSEN), [100 + 10 * number for number in range(8)])
    assert forecast.aside == "no forecast has proved itself yet"


def test_it_comes_back_when_its_error_is_small_again():
    source = SourceForecast(CHOSEN)
    fed(source, [100 if number % 12 < 6 else 400 for number in range(120)])
    forecast = fed(source, [400 + 10 * number for number in range(80)], start=1200.0)
    assert not forecast.aside
    assert forecast.rate > 400 + 10 * 79


def test_a_season_that_comes_back_is_known_before_it_turns():
    settings = ForecastSettings(horizon=300.0, season=7200.0)
    source = SourceForecast(settings)
    rates = [1000 + 800 * math.sin(2 * math.pi * (number * 10 + 5) / 7200) for number in range(1800)]
    # two and a half hours and more: just before the turn at the top
    forecast = fed(source, rates[: 720 + 150])
    assert forecast.way == SEASON
    truth = 1000 + 800 * math.sin(2 * math.pi * ((720 + 150) * 10 + 300) / 7200)
    assert forecast.rate == pytest.approx(truth, rel=0.05)


def test_no_trend_goes_on_for_ever():
    source = SourceForecast(CHOSEN.change(horizon=6000.0, worst_error=1.0, least_checks=1))
    forecast = fed(source, [100 + 50 * number for number in range(1500)])
    assert forecast.rate <= 3 * (100 + 50 * 1499)


def test_a_window_that_is_not_newer_teaches_nothing():
    source = SourceForecast(CHOSEN)
    source.take(0.0, 10.0, 100.0)
    assert "no newer" in source.take(0.0, 10.0, 900.0).aside


def steered(policy, rates, held=4):
    pipeline = Pipeline({"work": 100.0}, {"work": held})
    answers = []
    for rate in rates:
        pipeline.backlog = 0.0
        window = pipeline.run(float(rate))
        answers.append(policy.propose(without_backlog(window)))
        pipeline.held["work"] = held
    return answers


def without_backlog(window):
    query = window.queries[0]
    sources = {name: replace(rate, backlog_records=0.0) for name, rate in query.sources.items()}
    return replace(window, queries=(replace(query, sources=sources),))


def test_the_inner_policy_is_asked_about_what_is_expected():
    ramp = [100 + 5 * number for number in range(50)]
    policy = ForecastPolicy(Ds2Policy(FULL), CHOSEN)
    last = steered(policy, ramp)[-1]
    assert isinstance(last, Hold | Scale)
    # at 345/s four instances are enough; 60 s later it is 380, and so they still are
    ahead = steered(ForecastPolicy(Ds2Policy(FULL), CHOSEN), [*ramp, *range(350, 390, 5)])[-1]
    assert isinstance(ahead, Scale) and ahead.parallelism["work"] == 5
    assert "expected in 60 s by trend, now 385/s" in ahead.reason
    assert ahead.expected.figures["forecast_per_second"] == pytest.approx(417.5, rel=0.01)


def test_a_falling_rate_is_not_acted_on_before_its_time():
    falling = [400 - 3 * number for number in range(60)]
    answer = steered(ForecastPolicy(Ds2Policy(FULL), CHOSEN), falling, held=3)[-1]
    assert isinstance(answer, Hold) and "not sized down before its time" in answer.reason


def test_stepping_aside_is_said_with_its_reason():
    answer = steered(ForecastPolicy(Ds2Policy(FULL), CHOSEN), [100, 300])[-1]
    assert answer.reason.endswith("; no forecast: 2 of 6 windows seen for a trend")


def test_a_source_that_cannot_be_read_is_left_to_the_inner_policy():
    window = Pipeline({"work": 100.0}).run(50.0)
    broken = replace(window.queries[0], sources={"source": SourceRate(math.nan, math.nan, math.nan)})
    policy = ForecastPolicy(Ds2Policy(FULL), CHOSEN)
    assert isinstance(policy.propose(replace(window, queries=(broken,))), NotReady)


def test_the_season_and_the_inner_memory_survive_a_restart():
    settings = ForecastSettings(horizon=60.0, season=7200.0)
    policy = ForecastPolicy(built("ds2-learned", utilisation=1.0), settings)
    steered(policy, [100, 200, 300, 400])
    assert isinstance(policy, Learner) and policy.memory_kind == "forecast:capacity"
    kept = json.loads(json.dumps(policy.learned()))
    assert set(kept) == {"rates of pipeline/source", "capacity of work"}
    fresh = ForecastPolicy(built("ds2-learned", utilisation=1.0), settings)
    assert fresh.recall(kept) == ()
    assert fresh.learned()["capacity of work"]["points"] == kept["capacity of work"]["points"]
    assert fresh.learned()["rates of pipeline/source"] == kept["rates of pipeline/source"]


def test_memories_that_cannot_be_used_are_named():
    policy = ForecastPolicy(Ds2Policy(FULL), ForecastSettings())
    useless = policy.recall({"rates of a/b": {"bin_seconds": 1.0, "bins": []}, "rates of c": {}})
    assert len(useless) == 2
    assert "another length" in useless[0]


def test_any_policy_can_have_a_forecast():
    assert make_policy("queueing", Settings(forecast=True)).name == "forecast:queueing"
    assert make_policy("forecast:ds2-learned", Settings()).name == "forecast:ds2-learned"
    assert make_policy("forecast:ds2", Settings(forecast=True)).name == "forecast:ds2"
    with pytest.raises(BadSettings, match="forecast:dss"):
        policy_entry("forecast:dss")
