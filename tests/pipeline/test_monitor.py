"""What the monitor makes of batches, and that every policy works on it through the real loop."""

from __future__ import annotations

import pytest

from penstock.dataflow.rates import measure_rates
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import OperatorWindow
from penstock.decide.readings import UnitReader
from penstock.pipeline.batches import BatchDone, InstanceWork
from penstock.pipeline.monitor import Monitor, TopicReading
from penstock.pipeline.spark_batch import blames_records
from penstock.pipeline.spark_term import parse_batch
from penstock.settings.model import Settings
from penstock_lab.experiments.faults.virtual_pipeline import VirtualPipeline, word_count

HELD = {"split": 2, "count": 1}


def offered(reading):
    return {"split": {"sentences": reading}}


def a_batch(function, end, records, written, useful, parallelism, dead=0.0):
    work = tuple(
        InstanceWork(n, records / parallelism, written / parallelism, dead / parallelism, useful)
        for n in range(parallelism)
    )
    return BatchDone(function, int(end), end - 4, end, parallelism, work)


def started():
    monitor = Monitor("words", word_count().layout())
    first = monitor.observe(0.0, HELD, offered(TopicReading(100.0, 0.0)))
    assert isinstance(first, NotReady)
    return monitor


def test_rates_of_a_window_are_those_of_its_batches():
    monitor = started()
    monitor.take_in(a_batch("split", 5, 400, 8000, 4.0, 2, dead=3))
    monitor.take_in(a_batch("count", 9, 6000, 60, 6.0, 1))
    window = monitor.observe(10.0, HELD, offered(TopicReading(50.0, 120.0)))
    assert isinstance(window, OperatorWindow)
    assert window.parallelism == HELD
    (query,) = window.queries
    rates = measure_rates(query.graph, query.metrics, HELD)
    split, count = query.graph.index["split"], query.graph.index["count"]
    assert rates.true_processing[split] == pytest.approx(100.0)
    assert rates.true_processing[count] == pytest.approx(1000.0)
    assert rates.selectivity[split] == pytest.approx(20.0)
    assert query.sources["sentences"].offered_per_second == 50.0
    assert query.topics["count"].backlog_records == 2000
    figures = monitor.figures()["split"]
    assert figures.service_seconds == pytest.approx(0.02)
    assert figures.completion_seconds == pytest.approx(10 / 400)
    assert figures.busy_ratio == pytest.approx(0.4)
    assert monitor.count_totals("split")["dead_letters"] == 3


def test_rates_are_told_before_there_is_a_window():
    monitor = started()
    assert monitor.measure_newest("split") == {}
    monitor.take_in(a_batch("split", 5, 400, 8000, 4.0, 2))
    monitor.take_in(a_batch("split", 9, 400, 8000, 4.0, 2))
    assert monitor.measure_newest("split") == {"observed_per_second": 100.0, "written_per_second": 2000.0}


def test_the_backlog_stands_before_the_function_that_reads_the_topic():
    monitor = started()
    monitor.take_in(a_batch("split", 5, 400, 8000, 1.0, 2))
    monitor.take_in(a_batch("count", 9, 8000, 60, 9.5, 1))
    window = monitor.observe(10.0, HELD, offered(TopicReading(50.0, 300.0)))
    units = {unit.name: unit for unit in UnitReader().read(window)}
    assert (units["split"].backlog, units["count"].backlog) == (300.0, 0.0)


def test_a_window_goes_on_until_a_function_that_is_waited_for_has_ended_a_batch():
    monitor = started()
    monitor.take_in(a_batch("split", 5, 400, 8000, 4.0, 2))
    waiting = monitor.observe(10.0, HELD, offered(TopicReading(50.0, 0.0)))
    assert isinstance(waiting, NotReady) and "'count'" in waiting.reason
    monitor.take_in(a_batch("count", 14, 8000, 60, 6.0, 1))
    window = monitor.observe(20.0, HELD, offered(TopicReading(50.0, 0.0)))
    assert (window.start, window.end) == (0.0, 20.0)
    assert window.queries[0].metrics.records_in.max() == pytest.approx(8000)


def test_batches_at_another_parallelism_do_not_count():
    monitor = started()
    monitor.take_in(a_batch("split", 5, 400, 8000, 4.0, 1))
    seen = monitor.observe(10.0, HELD, offered(TopicReading(50.0, 7.0)))
    assert isinstance(seen, NotReady) and "'split' at 2 instances" in seen.reason


def test_batches_from_before_the_clock_went_back_are_not_met_a_second_time():
    monitor = started()
    monitor.take_in(a_batch("split", 1005, 400, 8000, 4.0, 2))
    assert isinstance(monitor.observe(1010.0, HELD, offered(TopicReading(50.0, 0.0))), NotReady)
    monitor.take_in(a_batch("count", 1015, 8000, 60, 6.0, 1))
    assert not isinstance(monitor.observe(1020.0, HELD, offered(TopicReading(50.0, 0.0))), NotReady)
    assert isinstance(monitor.observe(1000.0, HELD, offered(TopicReading(50.0, 0.0))), NotReady)
    for end in (1006, 1016):
        monitor.take_in(a_batch("split", end, 400, 8000, 4.0, 2))
        monitor.take_in(a_batch("count", end + 2, 8000, 60, 6.0, 1))
    window = monitor.observe(1020.0, HELD, offered(TopicReading(40.0, 0.0)))
    assert window.queries[0].topics["count"].offered_per_second == 2 * 8000 / 20
    assert monitor.figures()["split"].observed_per_second == 2 * 400 / 20
    assert monitor.count_totals("split")["batches"] == 3


def test_an_unknown_rate_from_outside_is_not_guessed():
    monitor = started()
    seen = monitor.observe(10.0, HELD, offered(TopicReading(float("nan"), 0.0)))
    assert isinstance(seen, NotReady) and "'sentences'" in seen.reason


def test_what_waited_before_the_monitor_began_is_no_negative_backlog():
    monitor = started()
    monitor.take_in(a_batch("split", 5, 400, 100, 4.0, 2))
    monitor.take_in(a_batch("count", 9, 900, 60, 6.0, 1))
    window = monitor.observe(10.0, HELD, offered(TopicReading(50.0, 0.0)))
    assert window.queries[0].topics["count"].backlog_records == 0.0


SETTINGS = {
    "policy_interval": 10.0,
    "warm_up_intervals": 1,
    "activation_intervals": 1,
    "utilisation": 1.0,
    "utilisation_low": 0.5,
    "max_executors": 40,
    "scale_down_delay": 10.0,
    "catch_up": 100_000.0,
}


def test_ds2_sizes_both_functions_exactly_in_one_step():
    run = VirtualPipeline(Settings(policy="ds2", **SETTINGS)).run(200)
    assert run.errors == []
    assert dict(run.record.records[0].planned) == {"split": 10, "count": 20}
    assert len(run.record.records) == 1
    assert run.board.wanted == {"split": 10, "count": 20}


@pytest.mark.parametrize("policy", ["threshold", "dhalion", "ds2-learned", "queueing", "autrascale", "drs"])
def test_every_policy_drives_the_pipeline_through_the_same_loop(policy):
    settings = {**SETTINGS, "utilisation": 0.8, "latency_target": 20.0}
    run = VirtualPipeline(Settings(policy=policy, **settings)).run(600)
    assert run.errors == []
    assert run.record.records, run.record.decisions
    held = run.board.wanted
    assert held["split"] > 1 and held["count"] > 1, held


def test_threshold_takes_many_steps_where_ds2_takes_one():
    steps = {
        policy: len(VirtualPipeline(Settings(policy=policy, **SETTINGS)).run(400).record.records)
        for policy in ("ds2", "threshold")
    }
    assert steps["ds2"] == 1
    assert steps["threshold"] >= 9


REPORT = {
    "runId": "r",
    "batchId": 4,
    "timestamp": "2026-01-01T00:00:10.000Z",
    "numInputRows": 300,
    "durationMs": {"addBatch": 1500, "triggerExecution": 2000},
    "sources": [],
    "sink": {"description": "files", "numOutputRows": 120},
}


def test_a_report_is_a_batch_of_one_instance():
    batch = parse_batch("archive", REPORT)
    assert (batch.records, batch.written, batch.parallelism) == (300, 120, 1)
    assert batch.end - batch.start == 2.0
    assert batch.work[0].useful_seconds == 1.5


def test_a_sink_that_does_not_count_is_taken_to_write_what_was_read():
    assert parse_batch("archive", {**REPORT, "sink": {"numOutputRows": -1}}).written == 300


def test_idle_triggers_and_broken_reports_are_no_batches():
    assert parse_batch("archive", {**REPORT, "durationMs": {"triggerExecution": 3}}) is None
    assert parse_batch("archive", {"batchId": "?"}) is None


def test_only_what_is_in_a_batch_makes_it_dead():
    assert blames_records(ValueError("no such key"))
    assert blames_records(RuntimeError("Task 0 failed 4 times: ValueError: no"))
    assert not blames_records(RuntimeError("Job 7 cancelled part of cancelled job group"))
    assert not blames_records(RuntimeError("ExecutorLostFailure (executor 2 exited)"))
    assert not blames_records(OSError("could not be renamed"))
    assert not blames_records(RuntimeError("org.apache.kafka.common.errors.TimeoutException: no broker"))
