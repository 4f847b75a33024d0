"""The streaming view of a log: hand-computed rates, phases, triggers, and reasons of slow batches."""

from __future__ import annotations

import pytest

from penstock.diagnose.log.reader import read_log
from penstock.diagnose.streaming import view_queries
from tests.diagnose.logs import BASE, LogBuilder, streaming_job

PHASES = {"latestOffset": 100, "walCommit": 200, "queryPlanning": 300, "addBatch": 1200,
          "commitOffsets": 150, "triggerExecution": 2000}  # fmt: skip


def view(log, start=0, end=10**9):
    return view_queries(read_log(log.lines), BASE + start, BASE + end)


def told_of_state(commit=100, flush=20, sync=60, late=0):
    measures = {"rocksdbCommitFlushLatency": flush, "rocksdbCommitFileSyncLatencyMs": sync,
                "rocksdbGetCount": 5, "rocksdbChangeLogWriterCommitLatencyMs": 10}  # fmt: skip
    return {"operatorName": "stateStoreSave", "numRowsTotal": 1000, "numRowsUpdated": 50,
            "numRowsDroppedByWatermark": late, "memoryUsedBytes": 4096, "commitTimeMs": commit,
            "allUpdatesTimeMs": 300, "allRemovalsTimeMs": 40, "customMetrics": measures}  # fmt: skip


def sources(rows, offered=10.0, processed=20.0):
    return [{"numInputRows": rows, "inputRowsPerSecond": offered, "processedRowsPerSecond": processed}] * 2


def batches(*told, every=4000):
    """A log of one query; each batch is told as (phases that differ, fields of the progress)."""
    log = LogBuilder().executor("1", 100)
    for number, (phases, fields) in enumerate(told):
        log.progress(number, 1000 + every * number, PHASES | phases, **fields)
    return log.application_end(1000 + every * len(told))


def test_a_batch_is_told_in_phases_rates_and_state():
    fields = {
        "sources": sources(40),
        "sink": {"numOutputRows": 7},
        "eventTime": {"watermark": "2023-11-14T22:13:11.000Z"},
        "stateOperators": [told_of_state(late=3), told_of_state(late=4)],
    }
    ((query),) = view(batches(({}, fields), ({}, fields), ({}, fields)))
    batch = query.batches[0]
    assert (query.name, query.trigger_seconds, query.median_seconds, query.cold_seconds) == (
        "counts", 4.0, 2.0, None,
    )  # fmt: skip
    assert batch.phases == pytest.approx(
        {"asking the source": 0.1, "offset log": 0.2, "planning": 0.3, "running": 1.2, "commit log": 0.15,
         "other": 0.05}
    )  # fmt: skip
    assert (batch.rows_in, batch.rows_out, batch.offered_per_second, batch.processed_per_second) == (
        80, 7, 20, 40,
    )  # fmt: skip
    # the log begins at 22:13:20, the first batch a second later
    assert batch.watermark_delay_seconds == pytest.approx(10.0)
    assert (batch.late_rows, batch.state_rows, batch.state_bytes) == (7, 2000, 8192)
    assert batch.state_seconds == pytest.approx({"update": 0.6, "removal": 0.08, "commit": 0.2})
    assert list(batch.commit_parts) == ["upload", "flush", "changelog"]
    assert batch.commit_parts["upload"] == pytest.approx(0.12)
    assert query.slow == []


def test_what_spark_does_not_know_is_not_told_as_a_number():
    fields = {"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}, "sink": {"numOutputRows": -1}}
    ((query),) = view(batches(({}, fields | {"sources": [{"inputRowsPerSecond": "NaN"}]})))
    batch = query.batches[0]
    assert batch.watermark_delay_seconds is None
    assert (batch.rows_out, batch.offered_per_second) == (0, 0)


def test_a_cold_first_batch_is_apart():
    cold = {"queryPlanning": 10_000, "triggerExecution": 11_700}
    ((query),) = view(batches((cold, {}), *[({}, {})] * 4, every=12_000))
    assert (query.cold_seconds, query.median_seconds, query.slow) == (11.7, 2.0, [])
    assert [batch.is_cold for batch in query.batches] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("phases", "fields", "reason"),
    [
        ({"latestOffset": 3100, "triggerExecution": 5000}, {},
         "asking the source took 3.1 s, usually 0.1 s; longer than the trigger of 4.0 s"),
        ({"addBatch": 3000, "triggerExecution": 3800}, {"sources": sources(30)},
         "running took 3.0 s, usually 1.2 s, with 3.0 times the usual rows"),
        ({"addBatch": 3000, "triggerExecution": 3800}, {"stateOperators": [told_of_state(900, sync=800)]},
         "running took 3.0 s, usually 1.2 s, with 0.9 task-seconds of state commit, most of it upload, "
         "usually 0.1"),
        ({"addBatch": 3000, "triggerExecution": 3800}, {}, "running took 3.0 s, usually 1.2 s"),
    ],
)  # fmt: skip
def test_a_slow_batch_is_told_with_its_reason(phases, fields, reason):
    usual = {"sources": sources(10), "stateOperators": [told_of_state()]}
    told = [({}, usual)] * 7
    told[4] = (phases, usual | fields)
    ((query),) = view(batches(*told))
    assert [(batch.number, batch.slow_because) for batch in query.slow] == [(4, reason)]


def test_batches_that_follow_each_other_have_no_trigger():
    ((query),) = view(batches(*[({}, {})] * 5, every=2000))
    assert query.trigger_seconds is None


def test_only_batches_within_the_span_are_shown_but_all_are_compared():
    slow = {"addBatch": 9000, "triggerExecution": 9800}
    ((query),) = view(batches(*[({}, {})] * 5, (slow, {}), every=10_000), 45_000)
    assert [batch.number for batch in query.batches] == [5]
    assert query.batches[0].slow_because.startswith("running took 9.0 s, usually 1.2 s")


def test_runs_of_a_query_are_apart_and_a_log_without_queries_has_none():
    log = streaming_job(3)
    last = max(place for place, line in enumerate(log.lines) if b'"runId":"r"' in line)
    log.lines[last] = log.lines[last].replace(b'"runId":"r"', b'"runId":"s"')
    assert [(one.run, len(one.batches)) for one in view(log)] == [("r", 2), ("s", 1)]
    assert view(LogBuilder().executor("1", 5)) == []
