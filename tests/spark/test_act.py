"""Executors come and go while a stateful query runs, and its counts stay right."""

import json
import time

import pytest

from penstock.act.actuator import ExecutorActuator
from penstock.act.scaling import ScalingSettings
from penstock.act.spark_executors import SparkExecutors
from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect, Scale
from penstock.errors import ActionFailed, SparkUnavailable
from penstock.observe.spark_source import SparkSource
from penstock_lab.ground.spark_cluster import executor_ids, hold_executors, kill_executor
from penstock_lab.workloads.records import WORDS_PER_SENTENCE, count_words
from penstock_lab.workloads.word_count import WordCount, start_word_count
from tests.spark.watching import watch
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 1

COUNTS, SEED = "counting", 5


@pytest.fixture(scope="module")
def source(spark):
    return SparkSource(spark)


@pytest.fixture(scope="module")
def counting(spark, source, tmp_path_factory):
    """A word count with state on its executors, which come and go; the last test counts its words."""
    load = WordCount("constant:40", 1e-4, 1e-5, source_partitions=3, count_partitions=3, seed=SEED)
    place = str(tmp_path_factory.mktemp("counting"))
    query = start_word_count(spark, load, place, trigger_seconds=2, name=COUNTS, sink="memory")
    source.observe(time.time())
    watch(source, COUNTS, lambda seen: len(seen.batches) > 0)
    yield query
    query.stop()


def records_read(query):
    progress = query.lastProgress
    return 0 if progress is None else json.loads(progress.json)["sources"][0]["endOffset"]["records"]


def to(executors):
    return Scale({EXECUTORS: executors}, "a test", ExpectedEffect("as asked"))


def perform(actuator, executors, query):
    actuator.begin(time.time(), to(executors))

    def ended():
        assert query.isActive
        return actuator.poll(time.time())

    return wait_for("the end of the change", ended)


def test_out_and_in_while_a_stateful_query_runs(spark, source, counting):
    actuator = ExecutorActuator(SparkExecutors(spark), ScalingSettings(), source.state_bins)
    assert actuator.held() == {EXECUTORS: 1}
    (first,) = executor_ids(spark)

    grown = perform(actuator, 3, counting)
    assert (grown.status, grown.observed) == (Status.DONE, {EXECUTORS: 3})
    assert len(executor_ids(spark)) == 3

    source.observe(time.time())
    bins = source.state_bins()
    shrunk = perform(actuator, 1, counting)
    assert (shrunk.status, shrunk.observed) == (Status.DONE, {EXECUTORS: 1})
    (kept,) = executor_ids(spark)
    assert bins.get(kept, 0) == max(bins.values())
    if max(bins, key=bins.get) == first:
        assert kept == first


def test_more_than_the_cluster_has_ends_partial_in_bounded_time(spark, source, counting):
    hold_executors(spark, 3)  # however long those that it has take to start
    actuator = ExecutorActuator(
        SparkExecutors(spark), ScalingSettings(executor_timeout="8s"), source.state_bins
    )
    outcome = perform(actuator, 5, counting)
    assert outcome.status is Status.PARTIAL
    assert outcome.planned == outcome.requested == {EXECUTORS: 5}
    assert outcome.observed == {EXECUTORS: 3}
    assert outcome.seconds >= 8
    assert "no room for more" in outcome.detail
    assert actuator.held() == {EXECUTORS: 3}


def test_an_executor_that_is_killed_between_decision_and_action(spark, source, counting):
    hold_executors(spark, 3)
    actuator = ExecutorActuator(SparkExecutors(spark), ScalingSettings(), source.state_bins)
    victim = max(executor_ids(spark), key=int)
    kill_executor(spark, victim)
    outcome = perform(actuator, 2, counting)
    assert (outcome.status, outcome.observed) == (Status.DONE, {EXECUTORS: 2})
    assert victim not in executor_ids(spark)
    # the cluster may begin to replace the dead one before it hears of the new total; whoever joins late is
    # seen by the next decision, and can be released like any other
    hold_executors(spark, 3)
    settled = perform(actuator, 2, counting)
    assert (settled.status, settled.observed) == (Status.DONE, {EXECUTORS: 2})
    assert len(executor_ids(spark)) == 2


def test_each_word_was_counted_once_whatever_came_and_went(spark, counting):
    before = counting.lastProgress.batchId
    wait_for("another batch", lambda: counting.lastProgress.batchId > before + 1)
    assert counting.isActive
    counting.stop()
    counts = {row["word"]: row["count"] for row in spark.table(COUNTS).collect()}
    assert counts == count_words(sum(counts.values()) // WORDS_PER_SENTENCE, seed=SEED)
    # a batch that the stop has broken off may be in the sink before it is reported
    assert sum(counts.values()) >= records_read(counting) * WORDS_PER_SENTENCE


@pytest.fixture
def busy(spark, source, tmp_path):
    """A word count that keeps all three executors busy."""
    hold_executors(spark, 3)
    load = WordCount("constant:60", 0.02, 0.002, seed=SEED)
    query = start_word_count(spark, load, str(tmp_path), trigger_seconds=1, name="busy")
    source.observe(time.time())
    watch(source, "busy", lambda seen: len(seen.batches) > 0)
    yield query
    assert query.isActive
    query.stop()


def test_broken_off_in_mid_drain_nobody_stays_without_tasks_and_a_lost_answer_is_asked_for_again(
    spark, source, busy
):
    actuator = ExecutorActuator(SparkExecutors(spark), ScalingSettings(), source.state_bins)
    actuator.begin(time.time(), to(1))
    assert len(executor_ids(spark)) == 3, "tasks run there still"
    actuator.abandon()
    # who was told to stop would never get a task again
    wait_for("the others to be released", lambda: len(executor_ids(spark)) == 1)
    assert actuator.poll(time.time()) is None

    actuator.begin(time.time(), to(2))
    lose_the_next_answer(spark)
    with pytest.raises(SparkUnavailable):
        actuator.poll(time.time())
    grown = wait_for("the end of the change", lambda: actuator.poll(time.time()))
    assert (grown.status, grown.observed) == (Status.DONE, {EXECUTORS: 2})


def lose_the_next_answer(spark):
    """Close the reading end of this thread's connection: what is asked arrives, the answer does not."""
    spark.sparkContext._gateway._gateway_client.get_thread_connection().stream.close()


def test_what_spark_cannot_scale_is_refused(spark):
    actuator = ExecutorActuator(SparkExecutors(spark), ScalingSettings())
    with pytest.raises(ActionFailed, match="count"):
        actuator.begin(time.time(), Scale({"count": 3}, "a test", ExpectedEffect("none")))
    with pytest.raises(ActionFailed, match="at least one"):
        actuator.begin(time.time(), to(0))
