"""Progress reports of a query that is not ours, as batches of a function; and what makes a batch dead."""

from penstock.pipeline.spark_existing import batch_of
from penstock.pipeline.spark_query import blames_records

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
    batch = batch_of("archive", REPORT)
    assert (batch.records, batch.written, batch.parallelism) == (300, 120, 1)
    assert batch.end - batch.start == 2.0
    assert batch.work[0].useful_seconds == 1.5


def test_a_sink_that_does_not_count_is_taken_to_write_what_was_read():
    assert batch_of("archive", {**REPORT, "sink": {"numOutputRows": -1}}).written == 300


def test_idle_triggers_and_broken_reports_are_no_batches():
    assert batch_of("archive", {**REPORT, "durationMs": {"triggerExecution": 3}}) is None
    assert batch_of("archive", {"batchId": "?"}) is None


def test_only_what_is_in_a_batch_makes_it_dead():
    assert blames_records(ValueError("no such key"))
    assert blames_records(RuntimeError("Task 0 failed 4 times: ValueError: no"))
    assert not blames_records(RuntimeError("Job 7 cancelled part of cancelled job group"))
    assert not blames_records(RuntimeError("ExecutorLostFailure (executor 2 exited)"))
    assert not blames_records(OSError("could not be renamed"))
    assert not blames_records(RuntimeError("org.apache.kafka.common.errors.TimeoutException: no broker"))
