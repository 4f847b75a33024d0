"""Executors that come and go: the slots of a moment, and whether a batch had them all along."""

import math

from penstock.observe.executors.history import ExecutorHistory


def executor(name, added, slots=2):
    return {"id": name, "addTime": added * 1000, "maxTasks": slots}


def test_slots_of_a_moment():
    history = ExecutorHistory()
    history.note([executor("0", 10), executor("1", 20)], 25.0)
    history.note([executor("1", 20), executor("2", 40, 3)], 50.0)
    assert [history.slots_at(moment) for moment in (5, 15, 30, 45, 55)] == [0, 2, 4, 7, 5]
    assert history.cores == {"0": 2, "1": 2, "2": 3}


def test_a_batch_is_settled_if_its_executors_stayed_and_had_worked_before():
    history = ExecutorHistory()
    history.note([executor("0", 10)], 20.0)
    assert history.is_settled(30.0, 35.0, worked_before=25.0)
    assert not history.is_settled(30.0, 35.0, worked_before=math.inf), "the first batch warms executors up"
    history.note([executor("0", 10), executor("1", 32)], 40.0)
    assert not history.is_settled(30.0, 35.0, worked_before=25.0), "one came"
    assert not history.is_settled(36.0, 39.0, worked_before=30.0), "one had just come"
    history.note([executor("0", 10)], 60.0)
    assert not history.is_settled(55.0, 65.0, worked_before=50.0), "one went"


def test_executors_that_came_after_the_last_batch_began_have_new_slots():
    history = ExecutorHistory()
    history.note([executor("0", 10), executor("1", 20, 3)], 25.0)
    history.note([executor("1", 20, 3), executor("2", 40, 4)], 50.0)
    assert history.new_slots_at(55.0, worked_before=30.0) == 4
    assert history.new_slots_at(55.0, worked_before=15.0) == 7, "one that has left is no slot"
    assert history.new_slots_at(55.0, worked_before=41.0) == 0
    assert history.new_slots_at(55.0, worked_before=math.inf) == 7, "in the first batch all are new"


def test_what_is_long_gone_is_forgotten():
    history = ExecutorHistory()
    history.note([executor("0", 10)], 20.0)
    history.note([], 30.0)
    history.note([], 30.0 + 3601)
    assert history.cores == {}
