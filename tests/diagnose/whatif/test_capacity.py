"""Slots as a function of time: executors that come late, go early, or that the log does not name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnose.log.reader import read_log
from penstock.diagnose.whatif.capacity import measure_capacity
from penstock.diagnose.whatif.replay import replay
from penstock.diagnose.whatif.task_graph import build_task_graph
from tests.diagnose.eventful_logs import EventfulLog, elastic_job, waves
from tests.diagnose.logs import LogBuilder
from tests.diagnose.whatif.asking import ask_what_if


def test_executors_that_were_removed_when_the_work_was_done_count_while_it_ran():
    found = ask_what_if(elastic_job(executors=8, tasks=64).read())
    # 64 tasks of a second on eight slots: eight waves after the first second
    assert found.slots == 8
    assert found.replayed_seconds == pytest.approx(found.measured_seconds, rel=0.02)
    assert [item.slots for item in found.forecasts] == [4, 8, 16, 32]
    assert found.forecasts[2].seconds == pytest.approx(1 + 4 + 0.2, rel=0.02)


def test_an_executor_that_comes_late_does_not_count_from_the_start():
    log = EventfulLog().executor("1", 0, cores=1).job(0, 1000, [0]).attempt(0, 0, 1000, 12)
    waves(log, 0, ["1"], 4, 1000, 1000)
    log.executor("2", 5000, cores=1)
    end = waves(log, 0, ["1", "2"], 8, 5000, 1000)
    graph = build_task_graph(log.job_end(0, end).application_end(end).read())
    # alone for four tasks, together for four waves: nine seconds, where two slots from the start take seven
    assert replay(graph).seconds == pytest.approx(9)
    assert replay(graph, 2).seconds == pytest.approx(7)


def test_an_executor_that_is_lost_in_mid_job_is_gone_from_then_on():
    log = EventfulLog().executor("1", 0, cores=1).executor("2", 0, cores=1)
    log.job(0, 1000, [0]).attempt(0, 0, 1000, 8)
    waves(log, 0, ["1", "2"], 4, 1000, 1000)
    log.lost("2", 3000)
    end = waves(log, 0, ["1"], 4, 3000, 1000)
    graph = build_task_graph(log.job_end(0, end).application_end(end).read())
    assert replay(graph).seconds == pytest.approx(7)
    assert graph.slots == 2


def test_without_added_executors_the_slots_are_what_ran_at_once():
    log = EventfulLog().job(0, 1000, [0]).attempt(0, 0, 1000, 12)
    end = waves(log, 0, ["1", "1", "2"], 12, 1000, 1000)
    found = ask_what_if(log.job_end(0, end).application_end(end).read())
    assert found.slots == 3
    assert found.replayed_seconds == pytest.approx(found.measured_seconds)


def test_a_task_that_needs_two_cores_halves_the_slots():
    log = EventfulLog().properties(task__cpus=2).executor("1", 0, cores=4).job(0, 1000, [0])
    end = waves(log.attempt(0, 0, 1000, 6), 0, ["1", "1"], 6, 1000, 1000)
    assert ask_what_if(log.job_end(0, end).application_end(end).read()).slots == 2


def test_executors_follow_the_jobs_that_asked_for_them():
    """What is faster moves the next job forward, and its executors with it."""
    log = EventfulLog().executor("1", 0, cores=1).job(0, 1000, [0]).attempt(0, 0, 1000, 2)
    log.task(0, "1", 1000, 11_000).task(0, "1", 11_000, 12_000).job_end(0, 12_000)
    log.lost("1", 13_000).job(1, 20_000, [1]).executor("2", 22_000, cores=2).attempt(1, 0, 20_000, 2)
    log.task(1, "2", 22_000, 23_000).task(1, "2", 22_000, 23_000).job_end(1, 23_000)
    graph = build_task_graph(log.application_end(23_000).read())
    assert replay(graph).seconds == pytest.approx(23)
    faster = graph.map_stages(lambda stage: stage.with_tasks(stage.tasks.clip(max=1.0)))
    assert replay(faster).seconds == pytest.approx(23 - 9)


def test_a_replay_that_does_not_repeat_what_happened_is_told_and_predicts_nothing():
    """Tasks that wait for each other in a way that slots do not explain."""
    log = EventfulLog().executor("1", 0, cores=2).job(0, 1000, [0]).attempt(0, 0, 1000, 4)
    for number in range(4):
        log.task(0, "1", 1000 + 3000 * number, 2000 + 3000 * number)
    found = ask_what_if(log.job_end(0, 11_000).application_end(11_000).read())
    assert not found.is_trusted
    assert found.forecasts == () and found.gains == {}
    assert (found.measured_seconds, found.replayed_seconds) == (11, 3)


def test_a_replay_that_needs_slots_which_never_come_takes_one_that_was_there():
    log = LogBuilder().executor("1", 0, cores=1)
    log.job(0, 1000, [0]).stage(0, 1000, 1).start(0, 0, "1", 1000).end(0, 0, "1", 1000, 2000)
    log.add("SparkListenerExecutorRemoved", **{"Timestamp": 1_700_000_000_000 + 900, "Executor ID": "1"})
    graph = build_task_graph(read_log(log.job_end(0, 2000).application_end(2000).lines))
    assert replay(graph).seconds == pytest.approx(2)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 4), st.integers(0, 9000)), min_size=1, max_size=6)
)
def test_slots_at_any_time_are_the_cores_of_those_who_are_there(given_executors):
    log = EventfulLog()
    for number, (added, cores, stays) in enumerate(given_executors):
        log.executor(str(number), added, cores=cores).lost(str(number), added + stays + 1)
    log.application_end(20_000)
    capacity = measure_capacity(log.read())
    for at in range(0, 15_000, 250):
        there = sum(c for added, c, stays in given_executors if added <= at < added + stays + 1)
        assert capacity.slots_at(1_700_000_000_000 + at) == there
