"""Flink's autoscaler by its published rules: capacities by hand, its boundaries, its times."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.readiness import NotReady
from penstock.decide.baselines.flink_autoscaler import DOCUMENTED_EXAMPLE, FlinkSettings, target_capacity
from penstock.decide.policy import Hold, Scale
from penstock.settings.model import Settings
from penstock.simulate.run import simulate
from tests.decide.built import built
from tests.decide.pipelines import Pipeline
from tests.simulate.experiments import an_experiment

QUICK = {"metrics_window": 20.0, "stabilization_interval": 0.0, "scale_down_interval": 0.0}


@pytest.mark.parametrize(
    ("offered", "backlog", "utilization", "with_restart", "capacity"),
    [
        (700, 0, 0.7, False, 1000),
        (700, 0, 0.7, True, 1000 + 700 * 300 / 1800),
        (700, 36_000, 0.7, False, 1000 + 20),
        (700, 0, 1.3, False, 700),
        (0, 0, 0.7, True, 0),
    ],
)
def test_the_capacity_that_an_operator_should_have(offered, backlog, utilization, with_restart, capacity):
    found = target_capacity(offered, backlog, utilization, FlinkSettings(), with_restart)
    assert found == pytest.approx(capacity)


def test_without_a_catch_up_time_a_backlog_and_a_restart_count_for_nothing():
    settings = FlinkSettings(catch_up_duration=0.0)
    assert target_capacity(700, 1e9, 0.7, settings, True) == pytest.approx(1000)


def answers(offered, held, count=4, **settings):
    policy = built("flink-autoscaler", **{**QUICK, **settings})
    pipeline = Pipeline({"work": 100.0}, {"work": held})
    return [policy.propose(pipeline.run(offered)) for _ in range(count)]


@pytest.mark.parametrize(
    ("offered", "wanted"),
    [
        (390, 4),  # 97 % busy: within 0.7 + 0.3
        (200, 4),  # 200 / 0.4 + 200 / 6 = 533 is more than the capacity of 400
        (100, 2),  # 100 / 0.4 + 100 / 6 = 267 is less: 100 / 0.7 + 100 / 6 = 160 of 400
    ],
)
def test_nothing_changes_within_the_boundaries(offered, wanted):
    last = answers(offered, 4)[-1]
    assert (last.parallelism["work"] if isinstance(last, Scale) else 4) == wanted


def test_a_backlog_asks_for_growth_at_once():
    policy = built("flink-autoscaler", **QUICK)
    pipeline = Pipeline({"work": 100.0}, {"work": 2}, backlog=90_000.0)
    answer = [policy.propose(pipeline.run(190.0)) for _ in range(3)][-1]
    # 50 for the lag, 31.7 for a restart, 271.4 at 70 %: 353 of 200
    assert answer.parallelism["work"] == 4


def test_a_reduction_is_limited_and_delayed():
    first = answers(10, 10)[-1]
    assert first.parallelism["work"] == 4
    assert isinstance(answers(10, 10, scale_down_interval=600.0)[-1], Hold)


def test_nothing_is_decided_before_the_window_of_metrics_is_full():
    early, *_ = answers(500, 2, metrics_window=300.0)
    assert isinstance(early, NotReady) and "not full" in early.reason
    early, *_ = answers(500, 2, stabilization_interval=60.0)
    assert isinstance(early, NotReady) and "stabilise" in early.reason


def test_the_documented_example_is_of_its_settings():
    flink = Settings(**DOCUMENTED_EXAMPLE).flink
    assert (flink.utilization_target, flink.metrics_window, flink.restart_time) == (0.6, 300, 120)


@given(
    offered=st.floats(0, 1e6),
    backlog=st.floats(0, 1e9),
    shares=st.lists(st.floats(0.05, 1), min_size=2, max_size=2),
)
def test_more_load_or_less_utilisation_never_asks_for_less(offered, backlog, shares):
    low, high = sorted(shares)
    found = [target_capacity(offered, backlog, share, FlinkSettings(), True) for share in (high, low)]
    assert found == sorted(found)
    more = [target_capacity(offered, one, high, FlinkSettings(), True) for one in (0.0, backlog)]
    assert more == sorted(more)


def test_it_follows_a_rise_late_and_keeps_its_distance_between_changes():
    experiment = an_experiment(
        sources={"events": {"rate": "steps:0=1000,1800=8000"}},
        operators={"parse": {"inputs": ["events"], "service_time": "1ms", "instances": 2}},
        settings={"activation_intervals": 1, "warm_up_intervals": 0},
        duration=7200,
    )
    run = simulate(experiment, "flink-autoscaler")
    assert run.held[-1, 1] >= 8
    gaps = [later.intended_at - one.intended_at for one, later in pairwise(run.actions)]
    assert run.actions and min(gaps, default=900) >= 900
