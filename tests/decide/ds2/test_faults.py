"""Faults around a query on slots: nothing grows on false evidence, and the reason names the fault."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import BatchExecution, RunningBatch, RunningStage, StageExecution
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, LaggingExecutor, SlotQuery, SourceRate
from penstock.decide.ds2.slots import SharedSlots
from penstock.decide.goals import Goals
from penstock.decide.policy import Hold, Scale
from tests.decide.slot_windows import query_window, window

GRAPH = LogicalGraph(["scan", "count"], [("scan", "count")])
PERIOD = 5.0


def stage(operator: str, records: float, seconds_a_record: float, tasks: int = 8) -> StageExecution:
    read = np.full(tasks, records / tasks)
    useful = 0.05 + read * seconds_a_record
    return StageExecution(operator, read, read, useful, np.zeros(tasks), float(useful.sum()) / 4)


def batch(number: int, records: float, outside: float = 0.5, cost: float = 0.004) -> BatchExecution:
    """A batch on four slots, with so many seconds outside tasks."""
    stages = stage("scan", records, cost), stage("count", records, cost / 4)
    seconds = outside + sum(one.wall_seconds for one in stages)
    return BatchExecution(number, PERIOD * number, seconds, 4, records, stages)


def query(*batches: BatchExecution, rate: float = 400.0, backlog: float = 0.0, **more: object) -> SlotQuery:
    made = query_window(GRAPH, batches, {"scan": rate}, backlog, PERIOD)
    return replace(made, **more)


def calm(first: int = 0) -> SlotQuery:
    """Batches of 2,000 records, of 10 s of work on four slots: the size is right."""
    return query(*(batch(first + n, 2000.0 + 100 * (n % 3)) for n in range(6)))


def propose(policy: SharedSlots, seen: SlotQuery):
    return policy.propose(window(seen, executors=4, cores=1))


def test_the_size_is_right_without_a_fault():
    assert isinstance(propose(SharedSlots(Goals()), calm()), Hold)


@pytest.mark.parametrize("batches", [(), (batch(7, 2000.0),)])
def test_why_a_source_is_unknown_is_in_the_reason(batches):
    policy = SharedSlots(Goals())
    propose(policy, calm())
    gone = SourceRate(math.nan, 0.0, unknown_because="/data/in is gone")
    answer = propose(policy, replace(query(*batches), sources={"scan": gone}))
    assert isinstance(answer, NotReady)
    assert "what is offered to 'scan' is unknown: /data/in is gone" in answer.reason


def asleep(seconds: float, records: float = 2000.0) -> RunningBatch:
    """A batch whose tasks took some seconds and have long been done."""
    stages = (stage("scan", records, 0.004), stage("count", records, 0.001))
    done = tuple(RunningStage(one.operator, 8, 8, 0, records, one, is_over=True) for one in stages)
    return RunningBatch(8, 0.0, seconds, 4, done)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("with_tasks", [True, False])
def test_a_batch_that_sleeps_on_the_driver_asks_for_nothing(known, with_tasks):
    policy = SharedSlots(Goals())
    if known:
        propose(policy, calm())
    # three minutes at 400 records/s wait meanwhile, and the rate is half as high again
    running = asleep(180.0) if with_tasks else None
    sleeping = query(rate=600.0, backlog=100_000.0, running=running, outside_seconds=175.0)
    answer = propose(policy, sleeping)
    assert isinstance(answer, NotReady)
    assert "for 175 s no task has run" in answer.reason and "foreachBatch" in answer.reason
    assert "more executors" in answer.reason


def test_batches_that_sleep_each_time_hold_the_size_and_say_why():
    policy = SharedSlots(Goals())
    propose(policy, calm())
    for number in range(6, 16):
        # each batch reads what came in the four minutes of the one before it
        records = 200.0 * 240
        slept = query(batch(number, records, outside=180.0), rate=200.0, backlog=records)
        answer = propose(policy, slept)
        assert not isinstance(answer, Scale) or answer.parallelism[EXECUTORS] <= 4, answer.reason
    assert isinstance(answer, Hold) and "180.0 s of each batch pass outside tasks" in answer.reason


def test_a_moment_on_the_driver_is_no_fault():
    answer = propose(SharedSlots(Goals()), replace(calm(), outside_seconds=4.0))
    assert isinstance(answer, Hold)


SLOW = (LaggingExecutor("3", 9.7),)


def lagging_batch(number: int, records: float = 2000.0) -> BatchExecution:
    """Every fourth task ran on an executor at a tenth of its speed."""
    healthy = batch(number, records)
    stages = tuple(
        replace(one, useful_seconds=one.useful_seconds * np.where(np.arange(8) % 4 == 3, 10.0, 1.0))
        for one in healthy.stages
    )
    return replace(healthy, stages=stages, seconds=healthy.seconds * 10)


@pytest.mark.parametrize("known", [True, False])
def test_a_slow_executor_is_named_and_its_batches_teach_nothing(known):
    policy = SharedSlots(Goals())
    if known:
        propose(policy, calm())
    for number in range(6, 12):
        slow = replace(lagging_batch(number), settled=False)
        answer = propose(policy, query(slow, backlog=4000.0 * (number - 5), lagging=SLOW))
        assert isinstance(answer, NotReady)
        assert "executor 3 on host takes 9.7 times as long as the others" in answer.reason
    assert isinstance(propose(policy, calm(20)), Hold)


def test_beside_a_slow_executor_a_load_that_rises_is_still_sized_by_the_costs_of_before():
    policy = SharedSlots(Goals())
    propose(policy, calm())
    slow = replace(lagging_batch(9), settled=False)
    answer = propose(policy, query(slow, rate=1600.0, lagging=SLOW))
    # four times the load at costs without the slow one is four times the size, not forty
    assert isinstance(answer, Scale) and 8 <= answer.parallelism[EXECUTORS] <= 18
    assert "executor 3 on host takes 9.7 times" in answer.reason


def test_why_a_batch_was_left_out_is_in_the_reason():
    told = "batch 7 is left out: a stage of it failed and was tried again"
    answer = propose(SharedSlots(Goals()), query(left_out=told))
    assert isinstance(answer, NotReady) and told in answer.reason
