"""Dynamic allocation: pending tasks, doubling rounds, idle executors, and a day in its life."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.metrics import BatchExecution, StageExecution
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import Hold, Scale
from tests.decide.built import built
from tests.decide.pipelines import Pipeline
from tests.fakes import a_query, a_window


def window(executors, tasks, end=10.0, wall=8.0):
    """Executors of two slots; one batch with one stage."""
    ones = np.ones(tasks)
    stage = StageExecution("count", ones, ones, ones, ones, wall)
    batch = BatchExecution(int(end), end - 10, wall, 2 * executors, float(tasks), (stage,))
    query = replace(a_query(end - 10), batches=(batch,))
    return a_window(end=end, executors=executors, queries=(query,))


def policy(**settings):
    return built("dynamic-allocation", **settings)


def test_rounds_double_up_to_what_runs_all_tasks():
    asked, held, sizes = policy(), 1, []
    for number in range(1, 7):
        answer = asked.propose(window(held, tasks=30, end=10.0 * number))
        held = answer.parallelism[EXECUTORS] if isinstance(answer, Scale) else held
        sizes.append(held)
    # +1, +2, +4, +8 cut at the 15 executors that have 30 slots
    assert sizes == [2, 4, 8, 15, 15, 15]


def test_the_reason_counts_what_waits():
    answer = policy().propose(window(2, tasks=10))
    assert answer.reason == "2 → 3 executors: 6 of 10 tasks wait for a slot"


def test_a_round_without_pending_tasks_begins_again_with_one():
    asked = policy()
    asked.propose(window(1, tasks=30, end=10.0))
    asked.propose(window(2, tasks=4, end=20.0))
    answer = asked.propose(window(2, tasks=30, end=30.0))
    assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 3}


def test_tasks_that_wait_briefly_ask_for_nothing():
    # five waves in a second: the last begins after 0.8 s
    assert isinstance(policy().propose(window(1, tasks=10, wall=1.0)), Hold)
    assert isinstance(policy().propose(window(1, tasks=10, wall=2.0)), Scale)


def test_the_most_allowed_binds():
    answer = policy(most=2).propose(window(1, tasks=100))
    assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 2}
    assert isinstance(policy(most=2).propose(window(2, tasks=100)), Hold)


def test_it_is_blind_to_batches_that_overrun_with_a_task_for_each_slot():
    """Why it does not do for streaming: the batch takes ten periods and no executor is added."""
    assert isinstance(policy().propose(window(4, tasks=8, wall=100.0)), Hold)


def test_operators_with_instances_are_not_for_it():
    answer = policy().propose(Pipeline({"a": 5.0}).run(1.0))
    assert isinstance(answer, NotReady)


def test_without_tasks_it_waits():
    assert isinstance(policy().propose(a_window()), NotReady)


def test_story_load_up_stable_and_down():
    asked, held, told = policy(), 2, []
    for number, tasks in enumerate([4] * 2 + [16] * 6 + [4] * 8, start=1):
        answer = asked.propose(window(held, tasks, end=10.0 * number))
        held = answer.parallelism[EXECUTORS] if isinstance(answer, Scale) else held
        told.append((held, answer.reason))
    assert [size for size, _ in told[:8]] == [2, 2, 3, 5, 8, 8, 8, 8]
    # six windows without tasks for them make a minute
    assert [size for size, _ in told[8:]] == [8] * 5 + [2] * 3
    assert told[8][1] == "6 executors have no tasks, for 10 s so far"
    assert told[13][1] == "8 → 2 executors: 4 tasks at most, the others were idle for 60 s"
    assert "no executor is idle" in told[15][1]


@given(st.integers(1, 80), st.integers(1, 400), st.floats(0, 100))
def test_within_what_the_tasks_need(held, tasks, wall):
    answer = policy(idle_seconds=0.0).propose(window(held, tasks, wall=wall))
    if isinstance(answer, Scale):
        needed = min(64, math.ceil(tasks / 2))
        assert min(held, needed) <= answer.parallelism[EXECUTORS] <= max(held, needed)
