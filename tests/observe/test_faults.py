"""Faults of a running query in its windows: a driver that sleeps, slow executors, retried batches."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.dataflow.metrics import StageExecution
from penstock.observe.observed_batch import ObservedBatch
from penstock.observe.sources.files import FilesSeen
from penstock.observe.stages import OperatorOutline, TaskTable
from tests.observe.test_collector import CHAIN, FILES, KAFKA, chain_batch, collector, progress, source, table

SCAN = (OperatorOutline("scan", (), False),)


def test_a_batch_that_works_on_the_driver_alone_is_told_since_its_last_task():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    words.note_work(True, True, 0.0, 10.0)
    assert words.window(0.0, 10.0).outside_seconds == 0
    # its job ended at 12, and then it sleeps
    for now in (20.0, 30.0, 190.0):
        words.note_work(True, False, 12.0, now)
        assert words.window(now - 10, now).outside_seconds == now - 12


def test_a_batch_that_never_had_a_job_counts_from_the_first_look():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    told = []
    for now in (20.0, 30.0, 40.0):
        words.note_work(True, False, 1.5, now)
        told.append(words.window(now - 10, now).outside_seconds)
    assert told == [0, 10, 20]


def test_batches_that_are_met_between_two_jobs_are_not_asleep():
    words = collector()
    for number in range(5):
        words.add(chain_batch(number, 5.0 * number, 500, 500 * (number + 1)), CHAIN)
        # each look meets another batch just before its job
        now = 5.0 * number + 5.1
        words.note_work(True, False, 5.0 * number + 1.9, now)
        assert words.window(now - 5, now).outside_seconds == 0


def test_a_query_that_waits_for_its_trigger_is_not_asleep():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    words.note_work(False, False, 1.9, 100.0)
    assert not words.is_working
    assert words.window(90.0, 100.0).outside_seconds == 0


def slow_batch(batch_id, slow, settled=True):
    names = tuple(str(number % 4) for number in range(8))
    seconds = np.array([10.0 if name == slow else 1.0 for name in names])
    stage = StageExecution("scan", np.full(8, 100.0), np.zeros(8), seconds, np.zeros(8), 20.0)
    told = source(800, {"events": {"0": 800 * (batch_id + 1)}}, description=KAFKA)
    reported = progress(batch_id, 30.0 * batch_id, told, seconds=21.0)
    return ObservedBatch(reported, (TaskTable(stage, names, 0.0, 20.0),), 4, settled)


def test_a_batch_that_waits_for_a_slow_executor_names_it_and_is_not_settled():
    words = collector()
    words.add(slow_batch(0, slow="3"), SCAN)
    window = words.window(0.0, 30.0)
    assert [one.executor for one in window.lagging] == ["3"]
    assert not window.batches[0].settled
    # while no further batch ends, it is still the reason
    assert words.window(30.0, 40.0).lagging == window.lagging
    words.add(slow_batch(1, slow=None), SCAN)
    window = words.window(30.0, 60.0)
    assert not window.lagging and window.batches[0].settled


def test_an_executor_that_is_new_may_be_slow():
    words = collector()
    words.add(slow_batch(0, slow="3", settled=False), SCAN)
    assert not words.window(0.0, 30.0).lagging


def test_why_a_batch_is_left_out_is_told_in_its_window():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    told = source(500, {"offset": 1000})
    words.add(ObservedBatch(progress(1, 10.0, told), (), 4, left_out="a stage failed"), ())
    window = words.window(5.0, 15.0)
    assert (window.batches, window.left_out) == ((), "a stage failed")
    words.running_problem = "a stage fails"
    assert words.window(15.0, 25.0).left_out == "a stage fails"


def test_a_directory_that_is_gone_is_named_in_the_window():
    words = collector()
    words.look([FILES], {0: FilesSeen(1.0, (), {})})
    told = source(0, {"logOffset": -1}, description=FILES)
    words.add(ObservedBatch(progress(0, 0.0, told), (table("scan", 0.0),), 4), SCAN)
    words.look([FILES], {0: FilesSeen(20.0, problem="/data/in is gone")})
    rate = words.window(10.0, 20.0).sources["scan"]
    assert math.isnan(rate.offered_per_second) and rate.unknown_because == "/data/in is gone"


@pytest.mark.parametrize("anew", [{"events": {"0": 10}}, {}])
def test_a_topic_made_anew_is_one_window_without_a_rate(anew):
    words = collector()
    offsets = [{"events": {"0": 500}}, {"events": {"0": 1000}}, anew, {"events": {"0": 510}}]
    told = []
    for number, offset in enumerate(offsets):
        batch = progress(number, 5.0 * number, source(0, offset, offset, description=KAFKA))
        words.add(ObservedBatch(batch, (table("scan", 0.0),), 4), SCAN)
        told.append(words.window(5.0 * number - 3, 5.0 * number + 3).sources["scan"])
    assert told[1].offered_per_second == 100
    assert math.isnan(told[2].offered_per_second) and told[2].backlog_records == 0
    assert "made anew" in told[2].unknown_because
    if anew:
        assert (told[3].offered_per_second, told[3].unknown_because) == (100, "")


def test_a_first_batch_that_works_on_the_driver_alone_is_told_too():
    words = collector()
    for now in (10.0, 70.0):
        words.note_work(True, False, 8.0, now)
    assert words.outside_seconds(70.0) == 62
