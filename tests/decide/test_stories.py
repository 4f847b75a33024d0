"""One story for every policy, in virtual time: load goes up, stays, goes down, and then a service is slow.

The loop, the manager and its guardrails are the real ones. 100 records a second for an instance: 200/s need 2
instances (3 with headroom), 500/s need 5 (7), 150/s need 2, and with half the capacity 3 (4).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from penstock.decide.registry import POLICIES
from penstock.simulate.loading import parse
from penstock.simulate.run import simulate

PHASE = 1200
PHASES = ("stable", "up", "down", "slow")
OPERATORS = """
duration: 80min
sources: {events: {rate: "steps:0=200,1200=500,2400=150"}}
operators:
  work: {inputs: [events], service_time: 10ms, instances: 3, variability: 1, queue: 1000}
slowdowns: [{operator: work, start: 60min, end: 80min, capacity: 0.5}]
scaling: {kind: live, pause: 10s}
settings: {policy_interval: 30s, latency_target: 50ms, max_executors: 20}
"""
BATCHES = """
duration: 80min
batches: {trigger: 10s, serial: 1s, executors: 2, cores: 2}
sources: {events: {rate: "steps:0=200,1200=500,2400=150", tasks: 4}}
operators:
  work: {inputs: [events], service_time: 10ms, tasks: 24, task_time: 10ms}
slowdowns: [{operator: work, start: 60min, end: 80min, capacity: 0.4}]
scaling: {kind: live, pause: 10s}
settings: {policy_interval: 30s, latency_target: 20s, max_executors: 20}
"""


@cache
def told(policy, text):
    return simulate(parse(text, Path("story.yaml")), policy)


def sizes(run):
    """Instances of the last operator, or executors, at the end of each phase."""
    return [int(run.held[(number + 1) * PHASE - 1, -1]) for number in range(4)]


def first_reason(run, phase):
    start = PHASES.index(phase) * PHASE
    return next(a.reason for a in run.actions if start <= a.intended_at < start + PHASE)


def changes(run, phase):
    start = PHASES.index(phase) * PHASE
    return [a for a in run.actions if start <= a.intended_at < start + PHASE]


AT_ONCE = {
    "autrascale": ("throughput phase, step 1: to keep up", "to read the backlog in the catch-up time"),
    "ds2": ("to keep up with the offered rate: work 3 → 7", "to keep up with the offered rate: work 2 → 4"),
    "ds2-learned": ("to keep up with the offered rate: work 3 → 7", "to keep up with the offered rate"),
    "forecast:ds2": ("work 3 → 7; no forecast: the rate is as steady", "no forecast: the rate is as steady"),
    "queueing": ("to meet the latency target: work 3 → 7", "to meet the latency target: work 2 → 5"),
}


@pytest.mark.parametrize("name", sorted(AT_ONCE))
def test_policies_that_size_at_once(name):
    run = told(name, OPERATORS)
    assert not run.errors
    assert sizes(run) == [3, 7, 2, 4]
    assert changes(run, "stable") == []
    assert len(changes(run, "up")) == 1
    # one action gives up half at most
    assert [a.planned["work"] for a in changes(run, "down")] == [4, 2]
    up, slow = AT_ONCE[name]
    assert up in first_reason(run, "up")
    assert slow in first_reason(run, "slow")


def test_drs_keeps_what_is_stable_and_meets_the_target():
    run = told("drs", OPERATORS)
    assert sizes(run) == [3, 6, 2, 4]
    assert "work 3 → 6: a record takes" in first_reason(run, "up")
    assert "work 2 → 4: a record takes" in first_reason(run, "slow")


def test_drs_with_observed_rates_takes_waiting_for_slowness_until_nothing_is_left():
    run = told("drs-observed", OPERATORS)
    assert sizes(run) == [20, 20, 20, 20]
    assert "more than it should with all that is allowed" in changes(run, "stable")[-1].reason


def test_threshold_goes_one_at_a_time_and_hunts():
    run = told("threshold", OPERATORS)
    assert first_reason(run, "stable") == "work 3 → 2: its backlog of 0 is at most 50"
    assert "is over 150" in first_reason(run, "up")
    assert any("is at most 50" in a.reason for a in changes(run, "down"))
    assert "is over 150" in first_reason(run, "slow")
    own = [a for a in run.actions if "back to" not in a.reason]
    assert all(abs(a.planned["work"] - a.before["work"]) == 1 for a in own)
    assert sizes(run)[1] >= 5


def test_dhalion_follows_backpressure_and_gives_back_bit_by_bit():
    run = told("dhalion", OPERATORS)
    assert first_reason(run, "up") == "work 2 → 6: sources are held back by 60%, and it is the bottleneck"
    assert "it may be too large" in first_reason(run, "down")
    assert "sources are held back by" in first_reason(run, "slow")
    assert len(changes(run, "down")) > 2


def test_reactive_cpu_cannot_see_beyond_all_of_the_time():
    run = told("reactive-cpu", OPERATORS)
    assert sizes(run) == [3, 7, 2, 4]
    assert "% of the time, 80% is right" in first_reason(run, "up")
    assert len(changes(run, "up")) > 2
    assert len(changes(run, "slow")) > 2


def test_reactive_lag_swings_since_no_lag_asks_for_nothing():
    run = told("reactive-lag", OPERATORS)
    assert "0 records wait, 1,000 are right for an instance" in first_reason(run, "stable")
    assert any("back to" in a.reason for a in run.actions)
    assert "records wait, 1,000 are right for an instance" in first_reason(run, "slow")


@pytest.mark.parametrize("name", ["ds2", "ds2-learned", "queueing", "autrascale", "forecast:ds2"])
def test_on_shared_slots_executors_follow_the_load(name):
    run = told(name, BATCHES)
    assert not run.errors
    assert sizes(run)[:3] == [2, 4, 2]
    assert sizes(run)[3] >= 3
    assert changes(run, "stable") == []
    assert "8 slots" in first_reason(run, "up")
    assert "3 slots" in first_reason(run, "down")


def test_dynamic_allocation_counts_tasks_and_never_shrinks_while_there_are_some():
    run = told("dynamic-allocation", BATCHES)
    assert first_reason(run, "stable") == "2 → 6 executors: 20 of 24 tasks wait for a slot"
    assert sizes(run) == [6, 12, 12, 12]
    assert run.decisions[-1].verdict.reason.startswith("24 tasks at most on 24 slots")


def test_trigger_interval_doubles_up_and_gives_back_one_by_one():
    run = told("trigger-interval", BATCHES)
    assert "take 180% of their interval, more than 90%" in first_reason(run, "up")
    assert "less than 50%" in first_reason(run, "down")
    assert len(changes(run, "down")) > 5
    assert any("more than 90%" in a.reason for a in changes(run, "slow"))


@pytest.mark.parametrize("name", ["dynamic-allocation", "trigger-interval"])
def test_policies_for_batches_say_that_operators_are_not_for_them(name):
    run = told(name, OPERATORS)
    assert run.actions == ()
    assert "operators" in run.decisions[-1].verdict.reason


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_decision_of_every_story_has_its_reason(name):
    for text in (OPERATORS, BATCHES):
        run = told(name, text)
        assert all(note.verdict.reason.strip() for note in run.decisions)
        assert not run.errors
