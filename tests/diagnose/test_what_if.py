"""The replay of a task graph, with the arithmetic in the comments."""

from __future__ import annotations

import pytest

from penstock.diagnose.event_log import read_log
from penstock.diagnose.replay import replay, task_graph
from penstock.diagnose.what_if import what_if
from tests.diagnose.logs import LogBuilder, skewed_job


def waves(slots, tasks, length=1000):
    """One job of equal tasks that ran in waves on an executor with this many cores."""
    log = LogBuilder().executor("1", 0, cores=slots).job(0, 1000, [0]).stage(0, 1000, tasks)
    for task in range(tasks):
        launch = 1000 + length * (task // slots)
        log.start(0, task, "1", launch).end(0, task, "1", launch, launch + length)
    end = 1000 + length * -(-tasks // slots)
    log.stage(0, 1000, tasks, done=end).job_end(0, end + 100)
    return read_log(log.application_end(end + 600).lines)


@pytest.mark.parametrize(("slots", "seconds"), [(1, 8), (2, 4), (3, 3), (8, 1), (100, 1)])
def test_whole_waves_on_other_slots(slots, seconds):
    graph = task_graph(waves(2, 8))
    # One second before the job, its tail of 0.1 s and the 0.5 s behind it stay as measured.
    assert replay(graph, slots).seconds == pytest.approx(1 + seconds + 0.1 + 0.5)


def test_the_replay_on_the_measured_slots_is_the_measured_time():
    log = read_log(skewed_job().lines)
    graph = task_graph(log)
    assert graph.slots == 4
    assert replay(graph).seconds == pytest.approx(graph.measured_seconds, rel=0.02)


def test_jobs_that_follow_one_another_keep_their_distance():
    log = LogBuilder().executor("1", 0, cores=1)
    for job in range(3):
        at = 1000 + job * 3000
        log.job(job, at, [job]).stage(job, at, 2).start(job, 2 * job, "1", at)
        log.end(job, 2 * job, "1", at, at + 1000).start(job, 2 * job + 1, "1", at + 1000)
        log.end(job, 2 * job + 1, "1", at + 1000, at + 2000).job_end(job, at + 2000)
    graph = task_graph(read_log(log.application_end(9000).lines))
    # On two slots every job halves to one second; the second between jobs stays.
    assert replay(graph, 2).seconds == pytest.approx(1 + 3 * 1 + 2 * 1)
    assert replay(graph, 2).job_seconds == pytest.approx({0: 1, 1: 1, 2: 1})


def test_gains_name_what_the_skewed_task_costs():
    answer = what_if(read_log(skewed_job().lines))
    # 5.97 s become 1.5 times the median of about 0.98 s.
    assert answer.gains["stragglers"] == pytest.approx(5.97 - 1.5 * 0.98, abs=0.1)
    assert answer.gains["gc"] == pytest.approx(0.3, abs=0.05)
    assert [item.slots for item in answer.forecasts] == [2, 4, 8, 16]


def test_without_barriers_a_stage_need_not_wait_for_the_slowest_task():
    log = LogBuilder().executor("1", 0, cores=2).job(0, 1000, [0, 1]).stage(0, 1000, 2)
    log.start(0, 0, "1", 1000).start(0, 1, "1", 1000)
    log.end(0, 0, "1", 1000, 2000).end(0, 1, "1", 1000, 5000).stage(1, 5000, 2, parents=[0])
    log.start(1, 2, "1", 5000).start(1, 3, "1", 5000).end(1, 2, "1", 5000, 6000).end(1, 3, "1", 5000, 6000)
    answer = what_if(read_log(log.job_end(0, 6000).application_end(6000).lines))
    # Four and one second become four: the second stage fits beside the slow task of the first.
    assert answer.gains["stage barriers"] == pytest.approx(1.0)


def test_a_log_without_a_finished_job_has_no_forecast():
    assert what_if(read_log(LogBuilder().executor("1", 5).lines)) is None
