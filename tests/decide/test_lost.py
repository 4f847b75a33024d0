"""Instances that died: the others are full, a backlog grows, and what idle ones could do does not count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.goals import Goals
from penstock.decide.policy import Hold, Scale
from penstock.simulate.loading import parse
from penstock.simulate.run import simulate
from penstock.simulate.virtual import BACKLOG, QUEUED
from tests.decide.pipelines import Pipeline

FULL = Goals(utilisation=1.0)
BURIED = """
duration: 50min
sources: {events: {rate: "constant:1000"}}
operators:
  main: {inputs: [events], service_time: 10ms, instances: 12, queue: QUEUE}
failures: [{operator: main, start: 10min, lasts: 25min, instances: 6}]
scaling: {kind: live, pause: 30s}
settings: {policy_interval: 10s, latency_target: 20s}
"""


def half_dead(working, offered=1000.0, backlog=0.0, silent=6):
    """A window in which some instances of one operator work and the others do nothing."""
    pipeline = Pipeline({"main": 100.0}, {"main": working}, backlog=backlog)
    window = pipeline.run(offered)
    query = window.queries[0]
    metrics, nothing = query.metrics, np.zeros(silent)
    columns = {
        name: np.concatenate([getattr(metrics, name), nothing])
        for name in ("records_in", "records_out", "useful_seconds", "waiting_seconds")
    }
    operator = np.concatenate([metrics.operator, np.full(silent, query.graph.index["main"])])
    query = replace(query, metrics=replace(metrics, operator=operator, **columns))
    return replace(window, parallelism={"source": 1, "main": working + silent}, queries=(query,))


def later(window, number):
    """The same window so many windows later."""
    query, shift = window.queries[0], number * 10.0
    metrics = replace(query.metrics, start=query.metrics.start + shift, end=query.metrics.end + shift)
    moved = replace(query, metrics=metrics)
    return replace(window, start=window.start + shift, end=window.end + shift, queries=(moved,))


def test_the_dead_are_replaced_not_counted_on():
    # six of twelve take 600 of 1,000 records/s, and 4,000 wait: 1,000 + 4,000 / 600 s need 10.07 → 11 living
    answer = Ds2Policy(FULL).propose(half_dead(6))
    assert isinstance(answer, Scale) and answer.parallelism["main"] == 11 + 6
    assert "6 of main" in answer.reason


def test_the_dead_stay_dead_while_the_others_catch_up_and_count_again_when_they_work():
    policy = Ds2Policy(FULL)
    policy.propose(half_dead(6))
    calm = later(half_dead(11, offered=1000.0), 1)
    assert isinstance(policy.propose(calm), Scale | Hold)
    answer = policy.propose(later(half_dead(11, offered=1100.0), 2))
    assert isinstance(answer, Hold) and "6 of main" in answer.reason
    alive = later(half_dead(17, silent=0), 3)
    answer = policy.propose(alive)
    assert isinstance(answer, Scale) and answer.parallelism["main"] == 10


def test_instances_without_a_record_are_not_dead():
    # two of twelve are enough for what comes; the others would be as fast
    answer = Ds2Policy(FULL).propose(half_dead(2, offered=150.0, silent=10))
    assert isinstance(answer, Scale) and answer.parallelism["main"] == 2


def test_instances_that_never_worked_have_nothing_to_read_and_more_would_not_help():
    policy = Ds2Policy(FULL)
    for number in range(3):
        answer = policy.propose(later(half_dead(4, offered=1000.0, silent=8), number))
        assert "do nothing" not in answer.reason


def test_most_may_die_where_they_have_worked_before():
    policy = Ds2Policy(FULL)
    policy.propose(half_dead(12, silent=0))
    answer = policy.propose(later(half_dead(4, silent=8), 1))
    assert isinstance(answer, Scale) and answer.parallelism["main"] > 12


@pytest.mark.parametrize("queue", ["1000", "null"])
@pytest.mark.parametrize("policy", ["ds2", "ds2-learned", "queueing", "sage"])
def test_half_of_the_instances_die_and_what_waits_is_bounded(policy, queue):
    """All four let it pile up, before the source or the operator: every one has what it needs, they said."""
    run = simulate(parse(BURIED.replace("QUEUE", queue), Path("buried.yaml")), policy)
    waiting = run.seen[600:2100, BACKLOG] + run.seen[600:2100, QUEUED]
    # 400 records/s too few until the first change works, some two minutes
    assert 10_000 < waiting.max() < 120_000, run.decisions[-1]
    assert waiting[-1] < 10_000
    assert not run.errors
