"""A live batch becomes its critical path: shares that sum to 1, causes that were made, no event log."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.summary import find_largest, write_critical
from penstock.diagnose.live_batch import build_batch_log, find_critical_window
from tests.diagnose.live_batches import (
    BASE_MS,
    batch,
    driver_bound,
    hot_task,
    hot_task_first,
    noted_after,
    slow_executor,
    task,
    word_count,
)


def test_a_task_bound_batch_names_the_operator_and_gains_by_slots():
    found = find_critical_window(word_count())
    assert found.task_share > 0.8
    assert find_largest(found.operator)[0] == "count"
    assert found.operator["count"] > found.operator["read"] > 0.2
    assert sum(found.activity.values()) == pytest.approx(1)
    assert found.hot_task is None
    # 12 tasks of 0.4 s and 12 of 0.6 s: six waves on two slots, one wave on twelve
    assert found.replayed_seconds == pytest.approx(found.end - found.start, rel=0.02)
    assert found.least_seconds == pytest.approx(0.4 + 0.6 + 0.46, abs=0.05)
    assert "count" in found.answer


def test_a_driver_bound_batch_is_called_so():
    found = find_critical_window(driver_bound())
    assert found.task_share < 0.1
    assert find_largest(found.worker)[0] == "driver"
    assert found.gain_of_slots < 0.05
    assert "more executors would not help" in found.answer


def test_the_task_that_holds_a_batch_up_is_named():
    found = find_critical_window(hot_task())
    hot = found.hot_task
    assert (hot.operator, hot.partition, hot.seconds) == ("count", 3, 3.0)
    assert hot.times_median == pytest.approx(10)
    assert hot.share > 0.7
    assert find_largest(found.worker)[0].startswith(f"executor {hot.executor} slot")
    assert found.gain_of_slots < 0.05


@pytest.mark.parametrize("noted_late", [-2, 0, 4, 15])
def test_to_wait_for_a_slot_is_no_scheduling_even_where_it_is_given_on_before_an_end_is_noted(noted_late):
    found = find_critical_window(hot_task_first(noted_late))
    assert found.causes["run"] > 0.8 > found.causes["scheduling"] + 0.6
    assert (found.hot_task.partition, find_largest(found.worker)[0]) == (0, "executor 0 slot 0")
    assert found.hot_task.share > 0.8 and "partition 0 on executor 0" in found.answer


def test_an_executor_that_is_slow_by_itself_is_named():
    found = find_critical_window(slow_executor())
    assert (found.slow_executor.executor, found.slow_executor.operator) == ("1", "count")
    assert found.slow_executor.times_others == pytest.approx(4)
    assert found.slow_executor.share > 0.5
    # one hot task does not make its executor slow, nor does an executor that reads more
    assert find_critical_window(hot_task()).slow_executor is None
    assert find_critical_window(batch([0.2] * 4, [0.5, 2.0, 0.5, 2.0])).slow_executor is None
    assert find_critical_window(word_count(executors=("0", "1"))).slow_executor is None


def test_commits_of_state_are_spread_over_the_stateful_tasks():
    log = build_batch_log(batch([0.5] * 4, [0.5] * 4, state_commit=800.0))
    assert sorted(set(zip(log.tasks["stage"].tolist(), log.tasks["state_commit"].tolist(), strict=True))) == [
        (10, 0),
        (11, 200),
    ]
    assert find_critical_window(batch([0.5] * 4, [0.5] * 4, state_commit=800.0)).activity["io"] > 0.1
    assert (
        "loading state stores" in find_critical_window(batch([0.1] * 4, [2.0] * 4, state_load=7000.0)).answer
    )


def test_failed_and_running_tasks_are_no_obstacle():
    whole = word_count()
    failed = task(40, "0", 500, 0.2, status="FAILED")
    running = {**task(41, "0", 600, 0.2, status="RUNNING"), "duration": None, "taskMetrics": None}
    stage = replace(whole.stages[0], tasks=[*whole.stages[0].tasks, failed, running])
    found = find_critical_window(replace(whole, stages=[stage, *whole.stages[1:]]))
    assert sum(found.activity.values()) == pytest.approx(1)


def test_a_batch_without_a_job_has_only_the_driver():
    idle = replace(batch(), jobs=[], stages=[])
    found = find_critical_window(idle)
    assert set(found.worker) == {"driver"}
    assert found.task_share == 0


def test_what_is_kept_of_it_is_small_and_plain():
    kept = write_critical(find_critical_window(hot_task()))
    assert json.loads(json.dumps(kept)) == kept
    assert kept["operator"]["name"] == "count"
    assert sum(kept["causes"].values()) == pytest.approx(1)
    assert next(iter(kept["causes"])) == "run"
    assert set(kept) == {
        "batch_id",
        "at",
        "seconds",
        "causes",
        "answer",
        "task_share",
        "gain_of_slots",
        "activity",
        "worker",
        "operator",
    }


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.floats(0.001, 5.0), min_size=1, max_size=12), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 30),
)
def test_shares_sum_to_one_whatever_the_tasks(lengths, executors, cores, noted_late):
    names = tuple(str(number) for number in range(executors))
    made = batch(*lengths, executors=names, cores=cores)
    found = find_critical_window(replace(made, stages=[noted_after(one, noted_late) for one in made.stages]))
    assert sum(found.activity.values()) == pytest.approx(1)
    assert found.least_seconds <= found.replayed_seconds + 1e-9
    assert found.start == BASE_MS / 1000
