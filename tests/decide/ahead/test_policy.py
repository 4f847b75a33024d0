"""The planning policy in the loop: near the bound, never short, and with its risk in the proposal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.decide.manager.manager import Accepted, ScalingManager
from penstock.decide.manager.settings import ManagerSettings
from penstock.decide.policy import HELD_UTILISATION, PLANNED_RISK, ExpectedEffect, Hold, Scale
from penstock.runtime.under_way import is_enough
from penstock.simulate.bound import find_bound
from penstock.simulate.measures import measure
from penstock.simulate.run import simulate
from tests.dataflow.synthetic_batches import word_count
from tests.decide.built import built
from tests.decide.pipelines import Pipeline
from tests.decide.slot_windows import window as on_slots
from tests.decide.slot_windows import words
from tests.fakes import a_query, a_window
from tests.simulate.experiments import an_experiment

RAMP = {
    "sources": {"events": {"rate": "sine:mean=9000,amplitude=7000,period=14400"}},
    "operators": {"parse": {"inputs": ["events"], "service_time": "1ms", "instances": 10}},
    "scaling": {"kind": "live", "pause": "45s"},
    "noise": 0.05,
    "settings": {"latency_target": "10s"},
    "duration": 7200,
}


def test_a_slow_day_is_held_near_the_bound_and_never_short():
    experiment = an_experiment(**RAMP)
    run = simulate(experiment, "ahead", 3)
    figures, plain = measure(run), measure(simulate(experiment, "ds2", 3))
    bound = find_bound(experiment, 3).measures
    assert run.errors == {} and figures.under_seconds <= 0.001 * 7200
    over = figures.over_slot_seconds / figures.oracle_slot_seconds
    assert over <= bound.over_slot_seconds / bound.oracle_slot_seconds + 0.12
    assert figures.over_slot_seconds < plain.over_slot_seconds


def test_a_dead_instance_is_replaced_however_fast_the_others_are():
    failure = {"operator": "parse", "start": 900, "lasts": 1200, "instances": 4}
    experiment = an_experiment(
        **{**RAMP, "duration": 1600, "failures": [failure]}
        | {"sources": {"events": {"rate": "constant:9500"}}}
    )
    run = simulate(experiment, "ahead", 1)
    assert run.held[880, 1] <= 12 and run.held[1500, 1] >= 14
    assert run.capable[1500, 1] >= 9500


def test_a_proposal_says_for_which_risk_it_is_and_how_long_changes_take():
    policy = built("ahead", risk=0.01)
    window = Pipeline({"work": 100.0}, {"work": 2}).run(500.0)
    answer = policy.propose(window)
    assert isinstance(answer, Scale) and answer.parallelism["work"] > 5
    assert answer.expected.figures[PLANNED_RISK] == 0.01
    assert "changes take 60 s" in answer.reason and "1.0%" in answer.expected.summary


def test_without_readings_it_says_what_is_awaited():
    answer = built("ahead").propose(a_window(queries=(a_query(offered=float("nan")),)))
    assert isinstance(answer, NotReady)


def test_a_window_that_was_shown_before_is_answered_and_one_that_comes_twice_is_not():
    policy, pipeline = built("ahead"), Pipeline({"work": 100.0}, {"work": 5})
    policy.propose(pipeline.run(400.0))
    window = pipeline.run(400.0)
    policy.watch(window)
    assert isinstance(policy.propose(window), Hold)
    assert "no newer than the last" in policy.propose(replace(window)).reason


def test_executors_that_are_held_tell_how_full_they_are_so_that_an_order_can_be_withdrawn():
    policy, seen = built("ahead"), on_slots(words(word_count(), 200.0, 10))
    for number in range(20):
        shown = replace(seen, start=10.0 * number, end=10.0 * number + 10)
        answer = policy.propose(shown)
    assert isinstance(answer, Hold) and answer.figures[HELD_UTILISATION] < 1
    assert is_enough(answer, shown)


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_after_a_jump_of_the_clock_it_goes_on_from_the_next_windows(jump):
    policy = built("ahead")
    pipeline = Pipeline({"work": 100.0}, {"work": 8})
    for _ in range(30):
        policy.propose(pipeline.run(400.0))
    jumped = [move_window(pipeline.run(400.0), jump) for _ in range(60)]
    if jump > 0:
        # the window in which the clock is set begins before it and ends after it
        across = replace(jumped[0], start=jumped[0].start - jump)
        assert "the clock jumped" in policy.propose(across).reason
    answers = [policy.propose(window) for window in jumped[1:]]
    assert not any(isinstance(answer, NotReady) for answer in answers)
    assert "the clock went back" in answers[0].reason or jump > 0
    # less than eight instances do, and that is seen within minutes, not after the clock has caught up
    assert any(isinstance(answer, Scale) and answer.parallelism["work"] < 8 for answer in answers)


def move_window(window, seconds):
    queries = tuple(
        replace(query, metrics=replace(query.metrics, start=window.start + seconds, end=window.end + seconds))
        for query in window.queries
    )
    return replace(window, start=window.start + seconds, end=window.end + seconds, queries=queries)


@pytest.mark.parametrize("planned", [True, False])
def test_the_manager_neither_waits_for_a_second_plan_nor_delays_a_smaller_size(planned):
    figures = {PLANNED_RISK: 0.001} if planned else {}
    manager = ScalingManager(ManagerSettings(warm_up_intervals=0))
    window = a_window(end=10.0, executors=4)
    scale = Scale({"executors": 3}, "enough", ExpectedEffect("calm", figures))
    verdict = manager.judge(10.0, window, scale)
    assert isinstance(verdict, Accepted) is planned
