"""Replays and forecasts, with the arithmetic in the comments; shared cores are calibrated on the log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnose.log.reader import read_log
from penstock.diagnose.whatif.interference import add_interference
from penstock.diagnose.whatif.replay import SharedCores, replay
from penstock.diagnose.whatif.task_graph import build_task_graph
from tests.diagnose.logs import LogBuilder, skewed_job
from tests.diagnose.whatif.asking import ask_what_if


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
    graph = build_task_graph(waves(2, 8))
    # One second before the job, its tail of 0.1 s and the 0.5 s behind it stay as measured.
    assert replay(graph, slots).seconds == pytest.approx(1 + seconds + 0.1 + 0.5)


def test_the_replay_on_the_measured_slots_is_the_measured_time():
    log = read_log(skewed_job().lines)
    graph = build_task_graph(log)
    assert graph.slots == 4
    assert replay(graph).seconds == pytest.approx(graph.measured_seconds, rel=0.02)


def test_jobs_that_follow_one_another_keep_their_distance():
    log = LogBuilder().executor("1", 0, cores=1)
    for job in range(3):
        at = 1000 + job * 3000
        log.job(job, at, [job]).stage(job, at, 2).start(job, 2 * job, "1", at)
        log.end(job, 2 * job, "1", at, at + 1000).start(job, 2 * job + 1, "1", at + 1000)
        log.end(job, 2 * job + 1, "1", at + 1000, at + 2000).job_end(job, at + 2000)
    graph = build_task_graph(read_log(log.application_end(9000).lines))
    # On two slots every job halves to one second; the second between jobs stays.
    assert replay(graph, 2).seconds == pytest.approx(1 + 3 * 1 + 2 * 1)
    assert replay(graph, 2).job_seconds == pytest.approx({0: 1, 1: 1, 2: 1})


def test_gains_name_what_the_skewed_task_costs():
    answer = ask_what_if(read_log(skewed_job().lines))
    # 5.97 s become 1.5 times the median of about 0.98 s.
    assert answer.gains["stragglers"] == pytest.approx(5.97 - 1.5 * 0.98, abs=0.1)
    assert answer.gains["gc"] == pytest.approx(0.3, abs=0.05)
    assert [item.slots for item in answer.forecasts] == [2, 4, 8, 16]


def test_without_barriers_a_stage_need_not_wait_for_the_slowest_task():
    log = LogBuilder().executor("1", 0, cores=2).job(0, 1000, [0, 1]).stage(0, 1000, 2)
    log.start(0, 0, "1", 1000).start(0, 1, "1", 1000)
    log.end(0, 0, "1", 1000, 2000).end(0, 1, "1", 1000, 5000).stage(1, 5000, 2, parents=[0])
    log.start(1, 2, "1", 5000).start(1, 3, "1", 5000).end(1, 2, "1", 5000, 6000).end(1, 3, "1", 5000, 6000)
    answer = ask_what_if(read_log(log.job_end(0, 6000).application_end(6000).lines))
    # Four and one second become four: the second stage fits beside the slow task of the first.
    assert answer.gains["stage barriers"] == pytest.approx(1.0)


def test_a_log_without_a_finished_job_has_no_forecast():
    assert ask_what_if(read_log(LogBuilder().executor("1", 5).lines)) is None


CORES = 2


def ends(cores, demands):
    """When each of these items ends, all of which enter at the moment that goes with it."""
    shared, found, arrivals = SharedCores(cores), {}, sorted(demands, key=lambda one: one[0])
    while arrivals or shared.next_end() < float("inf"):
        if arrivals and arrivals[0][0] <= shared.next_end():
            at, demand, name = arrivals.pop(0)
            shared.enter(at, demand, name)
        else:
            at = shared.next_end()
            found[shared.leave(at)] = at
    return found


def test_items_beyond_the_cores_get_equal_parts():
    # three items on two cores run at two thirds; when the short one has gone, at full speed
    assert ends(2, [(0, 1, "a"), (0, 1, "b"), (0, 2, "c")]) == pytest.approx({"a": 1.5, "b": 1.5, "c": 2.5})
    assert ends(2, [(0, 1, "a"), (5, 1, "b")]) == pytest.approx({"a": 1, "b": 6})
    assert ends(1, [(0, 2, "a"), (1, 2, "b")]) == pytest.approx({"a": 3, "b": 4})


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 3)), min_size=1, max_size=12))
def test_no_item_is_faster_than_alone_and_no_work_is_lost(cores, given_items):
    items = [(at, demand, number) for number, (at, demand) in enumerate(given_items)]
    found = ends(cores, items)
    assert all(found[number] >= at + demand - 1e-6 for at, demand, number in items)
    work = sum(demand for _, demand, _ in items)
    assert max(found.values()) >= min(at for at, _, _ in items) + work / cores - 1e-6
    assert max(found.values()) <= max(at for at, _, _ in items) + work + 1e-6


def log_of(slots, lengths, cpu=0, python=0):
    """Jobs of eight equal tasks in waves on so many slots; a task of a job takes so many milliseconds."""
    log, at = LogBuilder().executor("1", 0, cores=slots), 1000
    for job, length in enumerate(lengths):
        log.job(job, at, [job]).stage(job, at, 8)
        for task in range(8):
            launch = at + length * (task // slots)
            number = 8 * job + task
            log.start(job, number, "1", launch)
            log.end(job, number, "1", launch, launch + length, run=length, cpu=cpu, python=python)
        at += length * -(-8 // slots)
        log.stage(job, at, 8, done=at).job_end(job, at)
        at += 100
    return read_log(log.application_end(at).lines)


def job_seconds(log, slots):
    shared = add_interference(log, build_task_graph(log), CORES)
    return replay(shared, slots).job_seconds[0]


def test_tasks_that_compute_shrink_when_fewer_of_them_share_the_cores():
    # four at once on two cores take 2 s for 1 s of computing; two at once take 1 s: the job takes 4 s anyhow
    log = log_of(4, [2000, 2000, 2000], cpu=1000)
    assert job_seconds(log, 4) == pytest.approx(4, rel=0.02)
    assert job_seconds(log, 2) == pytest.approx(4, rel=0.02)
    assert job_seconds(log, 8) == pytest.approx(4, rel=0.02)
    assert replay(build_task_graph(log), 8).job_seconds[0] == pytest.approx(2)


def test_tasks_that_wait_do_not_disturb_each_other():
    log = log_of(4, [2000, 2000, 2000], python=2000)
    assert job_seconds(log, 8) == pytest.approx(2, rel=0.02)
    assert job_seconds(log, 2) == pytest.approx(8, rel=0.02)


def test_the_part_beside_python_code_is_found_from_the_log_itself():
    # 1 s waits and 0.4 s were measured beside it: four share two cores, so 0.2 s of them is work
    log = log_of(4, [1400, 1400, 1400], python=1000)
    assert job_seconds(log, 4) == pytest.approx(2.8, rel=0.02)
    assert job_seconds(log, 2) == pytest.approx(4 * 1.2, rel=0.02)
    assert job_seconds(log, 8) == pytest.approx(1.8, rel=0.02)


def test_where_every_slot_has_a_core_nothing_was_waited_for():
    log = log_of(2, [1000, 1000], python=800)
    assert job_seconds(log, 2) == pytest.approx(4, rel=0.02)
    # eight at once on two cores: 0.2 s of work becomes 0.8 s
    assert job_seconds(log, 8) == pytest.approx(1.6, rel=0.02)


def test_a_first_job_that_warms_up_does_not_spoil_the_others():
    warm = log_of(4, [1400, 1400, 1400], python=1000)
    cold = log_of(4, [9000, 1400, 1400], python=1000)
    shared = [add_interference(log, build_task_graph(log), CORES) for log in (warm, cold)]
    assert replay(shared[0], 8).job_seconds[2] == pytest.approx(replay(shared[1], 8).job_seconds[2], rel=0.02)


def test_forecasts_heed_the_cores_of_a_host():
    log = log_of(4, [2000, 2000, 2000], cpu=1000)
    alone, shared = ask_what_if(log, (8,)), ask_what_if(log, (8,), host_cores=CORES)
    assert alone.forecasts[0].median_job_seconds == pytest.approx(2)
    assert shared.forecasts[0].median_job_seconds == pytest.approx(4, rel=0.02)
    assert all(gain >= -0.01 for gain in shared.gains.values())
