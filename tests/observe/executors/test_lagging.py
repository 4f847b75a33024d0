"""An executor that lags behind is found by its tasks; hot partitions and short tasks are not it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.metrics import StageExecution
from penstock.observe.executors.lagging import find_lagging, find_lagging_lately
from penstock.observe.stages import TaskTable


def table(*tasks, operator="scan"):
    """A stage; a task is its executor, its seconds and its records."""
    executors, seconds, records = zip(*tasks, strict=True)
    read, useful = np.array(records, dtype=float), np.array(seconds, dtype=float)
    stage = StageExecution(operator, read, read, useful, np.zeros(len(tasks)), float(useful.max()))
    return TaskTable(stage, tuple(executors), 0.0, float(useful.max()))


def even(slow=None, times=10.0, tasks=8, executors=4, seconds=1.0):
    names = [str(number % executors) for number in range(tasks)]
    return table(*((name, seconds * (times if name == slow else 1.0), 100.0) for name in names))


def test_one_of_four_at_a_tenth_is_named():
    (found,) = find_lagging([even("3")])
    assert (found.executor, found.times_others) == ("3", pytest.approx(10.0))


def test_one_of_two_is_named():
    (found,) = find_lagging([even("1", tasks=4, executors=2)])
    assert found.executor == "1"


def test_two_of_six_are_named():
    names = [str(number % 6) for number in range(12)]
    found = find_lagging([table(*((name, 8.0 if name in "45" else 1.0, 10.0) for name in names))])
    assert [one.executor for one in found] == ["4", "5"]


def test_a_task_of_each_of_two_stages_is_enough():
    # while it works on one task, the others do all the rest
    scan = table(*[("0", 1.0, 100.0)] * 4, *[("1", 1.0, 100.0)] * 3, ("2", 10.0, 100.0))
    count = table(*[("0", 0.5, 10.0)] * 4, *[("1", 0.5, 10.0)] * 3, ("2", 5.0, 10.0), operator="count")
    assert [one.executor for one in find_lagging([scan, count])] == ["2"]


def test_one_long_task_is_no_slow_executor():
    assert not find_lagging([table(*[("0", 1.0, 100.0)] * 4, ("1", 10.0, 100.0))])


def test_a_hot_partition_is_no_slow_executor():
    # its tasks read ten times the records, and take ten times as long
    assert not find_lagging([table(*[("0", 1.0, 100.0)] * 6, ("1", 10.0, 1000.0), ("1", 11.0, 1000.0))])


def test_one_quick_task_acquits():
    assert not find_lagging(
        [table(*[("0", 1.0, 100.0)] * 6, ("1", 10.0, 100.0), ("1", 12.0, 100.0), ("1", 1.1, 100.0))]
    )


def test_short_tasks_say_nothing():
    # a host whose tasks of 10 ms take 60 is not why batches are long
    assert not find_lagging([even("3", times=6.0, seconds=0.01)])


def test_hosts_that_differ_by_half_are_ordinary():
    assert not find_lagging([even("3", times=2.0)])


def test_a_single_executor_has_no_others():
    assert not find_lagging([even("0", executors=1)])
    assert not find_lagging([])


tasks = st.tuples(st.sampled_from("012"), st.floats(0, 1e6), st.floats(0, 1e12))


@given(st.lists(st.lists(tasks, min_size=1, max_size=12), max_size=3))
def test_whatever_tasks_do_at_least_one_executor_is_not_slow(stages):
    tables = [table(*stage) for stage in stages]
    found = {one.executor for one in find_lagging(tables)}
    everyone = {name for one in tables for name in one.executor}
    assert found < everyone or not found


def one_each(slow=None, first=0):
    """A batch with one task for each of three executors, the first of them on this one."""
    names = [str((first + number) % 3) for number in range(3)]
    return [table(*((name, 10.0 if name == slow else 1.0, 100.0) for name in names))]


def test_with_one_task_a_batch_the_last_batches_tell_together():
    assert not find_lagging_lately([one_each("2")])
    (found,) = find_lagging_lately([one_each("2"), one_each("2", first=1)])
    assert found.executor == "2"


@pytest.mark.parametrize("first", [0, 1])
def test_one_task_is_enough_where_the_same_task_was_quick_before(first):
    # the next batch has the input of a long one, and would end in minutes
    (found,) = find_lagging_lately([one_each(), one_each("2", first)])
    assert (found.executor, found.times_others) == ("2", pytest.approx(10.0))


def test_a_task_that_is_slow_in_every_batch_is_that_tasks_own():
    assert not find_lagging_lately([one_each("2"), one_each("2"), one_each("2")])


def test_an_executor_that_has_recovered_or_gone_is_not_named():
    slow = [one_each("2"), one_each("2", first=1)]
    assert not find_lagging_lately([*slow, one_each(first=2)])
    assert not find_lagging_lately([*slow, [table(("0", 1.0, 100.0), ("1", 1.0, 100.0))]])
    assert not find_lagging_lately([])
