"""Latency of functions, measured from moments that travel with records, and what is decided by it."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.summary import read_operator_query, summarise, write_query
from penstock.dataflow.window import OperatorBatches, OperatorWindow
from penstock.decide.policy import Hold, Scale
from penstock.decide.registry import policy_entry
from penstock.pipeline import Pipeline, files
from penstock.pipeline.batches import (
    BatchDone,
    InstanceWork,
    describe_batches,
    measure_latency,
    measure_response,
    sum_up_batch,
    sum_up_group,
)
from penstock.pipeline.monitor import Monitor, TopicReading
from penstock.settings.model import Settings
from tests.pipeline.test_monitor import HELD, a_batch, offered, started


def one_function(trigger):
    pipeline = Pipeline("one", topics=files("topics"))
    pipeline.topic("numbers", schema="number bigint")
    pipeline.add(len, name="square", reads="numbers")
    return Monitor("one", pipeline.layout(), {"square": trigger})


def watch_batches(batches, offered_per_second, backlog=0.0, trigger=1.0, until=100.0):
    """One function over `until` seconds."""
    monitor, readings = (
        one_function(trigger),
        {"square": {"numbers": TopicReading(offered_per_second, backlog)}},
    )
    held = {"square": batches[0].parallelism}
    assert isinstance(monitor.observe(0.0, held, readings), NotReady)
    for one in batches:
        monitor.take_in(one)
    window = monitor.observe(until, held, readings)
    assert isinstance(window, OperatorWindow)
    return window, monitor


def test_latency_is_that_of_the_records_and_no_formula():
    """A batch of 2 s every 10 s; 100 records a second come evenly, and each batch reads those since the last.

    Every record is followed on its own. On average one waits 5 s for its batch, and 2 s in it.
    """
    batches, latencies = [], []
    for start in range(10, 100, 10):
        came = [start - 10 + (number + 0.5) / 100 for number in range(1000)]
        latencies += [start + 2 - moment for moment in came]
        accounts = {0: [1000, 0, 0, 1.5, sum(came), sum(came)]}
        batches.append(sum_up_batch("square", start, start, start + 2, 1, accounts))
    window, monitor = watch_batches(batches, 100.0, backlog=1000.0, trigger=10.0)
    assert fmean(latencies) == pytest.approx(7.0)
    assert window.queries[0].latency_seconds == pytest.approx(7.0)
    assert monitor.figures()["square"].response_seconds == pytest.approx(7.0)


@given(st.lists(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50)), max_size=20), min_size=1, max_size=8))
def test_the_latency_of_a_window_is_the_mean_over_all_its_records(records):
    """Each record as (seconds in the pipeline, seconds in the topic) before its batch ended."""
    batches = []
    for number, ages in enumerate(records):
        end = 10.0 + number
        sums = [sum(end - age[column] for age in ages) for column in (0, 1)]
        batches.append(sum_up_batch("square", number, end - 1, end, 1, {0: [len(ages), 0, 0, 0.0, *sums]}))
    everything = [age for ages in records for age in ages]
    wanted = [fmean(age[column] for age in everything) if everything else nan for column in (0, 1)]
    found = [measure_latency(batches), measure_response(batches)]
    assert found == pytest.approx(wanted, abs=1e-6, nan_ok=True)


def test_the_latency_of_a_path_is_that_at_the_function_which_records_reach_latest():
    monitor = started()
    monitor.take_in(replace(a_batch("split", 5, 400, 8000, 4.0, 2), entered_at=2.0, arrived_at=2.0))
    monitor.take_in(replace(a_batch("count", 9, 8000, 60, 6.0, 1), entered_at=2.0, arrived_at=5.0))
    (query,) = monitor.observe(10.0, HELD, offered(TopicReading(50.0, 0.0))).queries
    assert query.latency_seconds == 7.0
    assert [monitor.figures()[name].response_seconds for name in HELD] == [3.0, 4.0]


def test_without_moments_the_latency_is_unknown_and_clocks_that_differ_make_it_no_less_than_nothing():
    monitor = started()
    monitor.take_in(a_batch("split", 5, 400, 8000, 4.0, 2))
    monitor.take_in(a_batch("count", 9, 8000, 60, 6.0, 1))
    (query,) = monitor.observe(10.0, HELD, offered(TopicReading(50.0, 0.0))).queries
    assert query.latency_seconds is None
    assert query.batches["count"].response_seconds is None
    ahead = replace(a_batch("split", 5, 400, 8000, 4.0, 2), entered_at=6.0, arrived_at=6.0)
    assert (ahead.latency_seconds, ahead.response_seconds) == (0.0, 0.0)


def test_batches_are_told_with_the_part_that_instances_do_not_shorten():
    # 4 s each, in which one of two instances works for 1 s and the other for 2 s
    work = (InstanceWork(0, 100, 0, 0, 1.0), InstanceWork(1, 100, 0, 0, 2.0))
    batches = [
        BatchDone("square", n, 4.0 * n, 4.0 * n + 4, 2, work, 4.0 * n - 2, 4.0 * n - 1) for n in range(5)
    ]
    window, _ = watch_batches(batches, 50.0, until=30.0)
    assert window.queries[0].batches == {"square": OperatorBatches(1.0, 4.0, 2.5, 5.0)}


def test_the_trigger_of_a_query_that_is_not_ours_is_seen_from_its_batches():
    batches = [a_batch("own", end, 100, 0, 1.0, 1) for end in (4, 14, 24)]
    assert describe_batches(batches, None) == OperatorBatches(10.0, 4.0, 3.0, None)
    assert describe_batches(batches[:1], None) == OperatorBatches(4.0, 4.0, 3.0, None)
    assert describe_batches([], 1.0) is None


def back_to_back(instances, batch_seconds=3.0, service=0.013, rate=100.0, over=30):
    """Batches that follow each other at once, of which each reads what came during the one before."""
    batches, records = [], rate * batch_seconds
    for number in range(1, over):
        start = batch_seconds * number
        work = tuple(
            InstanceWork(n, records / instances, 0, 0, service * records / instances)
            for n in range(instances)
        )
        came = start - batch_seconds / 2
        batches.append(BatchDone("square", number, start, start + batch_seconds, instances, work, came, came))
    return batches


def test_queueing_sees_that_records_wait_for_batches_and_does_not_shrink():
    """Batches of 3 s, back to back: a record takes 4.5 s, whatever the 0.013 s of its own service."""
    window, _ = watch_batches(back_to_back(4), 100.0)
    policy = policy_entry("queueing").make(Settings(policy="queueing", latency_target=1.0, max_executors=64))
    answer = policy.propose(window)
    assert isinstance(answer, Scale), answer.reason
    assert answer.parallelism["square"] > 4
    assert "measured now: 4.5 s" in answer.reason
    # 2.025 s of each batch are no work: with any size records wait for half of such a batch, and then for it
    assert "waiting for batches and their fixed costs alone take 3.04 s" in answer.reason
    assert 3.0 < answer.expected.figures["latency_seconds"] < 4.5


def test_queueing_predicts_what_was_measured_where_nothing_changes():
    # the model says 4.5 s; records take 1 s longer, as where a directory is slow to list
    late = [
        replace(one, entered_at=one.entered_at - 1, arrived_at=one.arrived_at - 1) for one in back_to_back(4)
    ]
    window, _ = watch_batches(late, 100.0)
    settings = Settings(policy="queueing", latency_target=5.6, max_executors=64, queueing_scale_in_share=0.5)
    answer = policy_entry("queueing").make(settings).propose(window)
    assert isinstance(answer, Hold)
    assert answer.figures["latency_seconds"] == pytest.approx(5.5, abs=0.01)
    tighter = policy_entry("queueing").make(Settings(policy="queueing", latency_target=5.0, max_executors=64))
    assert tighter.propose(window).parallelism["square"] > 4


def test_autrascale_decides_by_the_latency_that_was_measured():
    """Batches of 2 s every 10 s with 10 s of records waiting: 7 s are measured, and 10 s allowed."""
    came = [BatchDone("square", n, n, n + 2, 1, (InstanceWork(0, 1000, 0, 0, 1.5),), n - 5, n - 5)
            for n in range(10, 400, 10)]  # fmt: skip
    monitor, readings = one_function(10.0), {"square": {"numbers": TopicReading(100.0, 0.0)}}
    settings = Settings(policy="autrascale", latency_target=10.0, max_executors=8)
    policy, answers = policy_entry("autrascale").make(settings), []
    for one in came:
        monitor.take_in(one)
        window = monitor.observe(one.end + 1, {"square": 1}, readings)
        answers += [] if isinstance(window, NotReady) else [policy.propose(window)]
    assert isinstance(answers[-1], Hold), answers[-1]
    (model,) = policy.models
    assert model.latencies == {(1,): pytest.approx(7.0)}


def test_a_recorded_window_keeps_its_batches():
    window, _ = watch_batches(back_to_back(4), 100.0)
    (query,) = window.queries
    kept = replace(summarise(query), detail=write_query(query))
    assert read_operator_query(kept, window.start, window.end).batches == query.batches
    older = {key: value for key, value in kept.detail.items() if key != "operator_batches"}
    assert read_operator_query(replace(kept, detail=older), window.start, window.end).batches == {}


def test_functions_that_shared_a_batch_divide_its_time_and_only_the_first_has_fixed_costs():
    accounts = {
        "a": {n: [10, 10, 0, 0.5, 0.0, 0.0] for n in range(4)},
        "b": {n: [10, 5, 1, 1.0, 0.0, 80.0] for n in range(4)},
    }
    first, second = sum_up_group(7, 10.0, 14.0, {"a": 1, "b": 3}, accounts)
    # a batch of 4 s, of which the mean of four instances was half a second at a, and one at b
    assert (first.seconds, first.fixed_seconds, first.useful_seconds) == (3.0, 2.5, 0.5)
    assert (second.seconds, second.fixed_seconds, second.useful_seconds) == (1.0, 0.0, 1.0)
    assert (first.parallelism, second.parallelism, first.straight, second.straight) == (1, 3, False, True)
    assert (first.records, first.written, second.records, second.written) == (40, 40, 40, 20)
    assert second.response_seconds == 14.0 - 8.0
    described = describe_batches([second], trigger_seconds=1.0)
    assert described.trigger_seconds == 0.0 and described.fixed_seconds == 0.0
    (alone,) = sum_up_group(7, 10.0, 14.0, {"a": 4}, accounts)
    assert alone == sum_up_batch("a", 7, 10.0, 14.0, 4, accounts["a"])
