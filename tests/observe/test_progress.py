"""Progress reports as Spark 4.3 writes them, and reports that cannot be."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadMetrics
from penstock.observe.collector import QueryCollector
from penstock.observe.observed_batch import ObservedBatch
from penstock.observe.progress import BATCHES, BatchProgress, BatchTimeline, cache_advice, parse_progress

WORD_COUNT = json.loads("""
{"id":"9afbbcc9-767e-4e55-8f87-f01a4f04d2dd","runId":"19263b9d-ddbd-454e-a66c-1e3bc7938f38","name":"wc",
 "timestamp":"2026-11-16T00:40:08.002Z","batchId":10,"batchDuration":1060,"numInputRows":2000,
 "inputRowsPerSecond":999.0,"processedRowsPerSecond":1886.8,
 "durationMs":{"addBatch":841,"commitOffsets":123,"getBatch":0,"latestOffset":0,"queryPlanning":31,
  "triggerExecution":1060,"walCommit":54},
 "stateOperators":[{"operatorName":"stateStoreSave","numRowsTotal":100,"numRowsUpdated":100}],
 "sources":[{"description":"RateStreamV2[rowsPerSecond=1000, rampUpTimeSeconds=0, numPartitions=3",
  "startOffset":38,"endOffset":40,"latestOffset":40,"numInputRows":2000}],
 "sink":{"description":"NoopTable","numOutputRows":100}}
""")

IDLE = json.loads("""
{"id":"608a46cc-9a35-413e-bf06-acde084b9f71","runId":"dec772e0-278a-4275-bcd6-3a3128848f56","name":"plain",
 "timestamp":"2026-11-16T00:40:06.000Z","batchId":5,"batchDuration":9,"numInputRows":0,
 "durationMs":{"latestOffset":6,"triggerExecution":9},"stateOperators":[],
 "sources":[{"description":"FileStreamSource[file:/data/in]","startOffset":{"logOffset":4},
  "endOffset":{"logOffset":4},"latestOffset":null,"numInputRows":0}]}
""")


def test_a_batch_with_its_timeline():
    progress = parse_progress(WORD_COUNT)
    assert (progress.batch_id, progress.input_records, progress.executed) == (10, 2000, True)
    assert progress.start == 1794789608.002
    assert progress.end == pytest.approx(1794789609.062)
    assert progress.state_rows == 100
    timeline = progress.timeline
    assert (timeline.planning, timeline.execution, timeline.total) == (0.031, 0.841, 1.06)
    assert timeline.commit == pytest.approx(0.177)
    assert timeline.other == pytest.approx(1.06 - 0.031 - 0.841 - 0.177)


def test_reads_that_miss_rocksdbs_cache_are_added_up_over_all_operators_with_state():
    counts = {"rocksdbReadBlockCacheHitCount": 30, "rocksdbReadBlockCacheMissCount": 70}
    stores = [{"customMetrics": counts}, {"customMetrics": counts}, {"numRowsTotal": 5}]
    progress = parse_progress({**WORD_COUNT, "stateOperators": stores})
    assert (progress.cache_hits, progress.cache_misses) == (60, 140)


def test_a_source_with_its_offsets_as_it_wrote_them():
    (source,) = parse_progress(WORD_COUNT).sources
    assert source.description.startswith("RateStreamV2[rowsPerSecond=1000")
    assert (source.start_offset, source.end_offset, source.latest_offset) == (38, 40, 40)
    assert source.input_records == 2000


def test_an_idle_trigger_did_not_execute():
    progress = parse_progress(IDLE)
    assert not progress.executed
    assert progress.input_records == 0
    assert progress.timeline.execution == 0
    assert progress.timeline.total == 0.009
    assert progress.sources[0].latest_offset is None


def test_phases_that_overlap_leave_no_negative_rest():
    report = {**WORD_COUNT, "durationMs": {"addBatch": 900, "queryPlanning": 200, "triggerExecution": 1000}}
    assert parse_progress(report).timeline.other == 0


@pytest.mark.parametrize("left_out", ["durationMs", "numInputRows", "sources", "stateOperators"])
def test_what_spark_leaves_out_counts_as_nothing(left_out):
    report = {key: value for key, value in WORD_COUNT.items() if key != left_out}
    assert parse_progress(report).batch_id == 10


@pytest.mark.parametrize("missing", ["runId", "batchId", "timestamp"])
def test_a_report_that_names_no_batch_is_refused(missing):
    report = {key: value for key, value in WORD_COUNT.items() if key != missing}
    with pytest.raises(BadMetrics, match=missing):
        parse_progress(report)


@pytest.mark.parametrize("bad", [float("nan"), -1, float("inf"), "many", [3]])
@pytest.mark.parametrize("place", ["batch", "source", "duration", "state"])
def test_counts_that_cannot_be_are_refused(bad, place):
    source = WORD_COUNT["sources"][0]
    reports = {
        "batch": {"numInputRows": bad},
        "source": {"sources": [{**source, "numInputRows": bad}]},
        "duration": {"durationMs": {"triggerExecution": bad}},
        "state": {"stateOperators": [{"numRowsTotal": bad}]},
    }
    with pytest.raises(BadMetrics, match="cannot be read"):
        parse_progress({**WORD_COUNT, **reports[place]})


@pytest.mark.parametrize(
    "changed",
    [{"timestamp": "yesterday"}, {"batchId": None}, {"sources": [None]}, {"durationMs": [1]}, {"sources": 3}],
)
def test_a_report_of_another_form_is_refused(changed):
    with pytest.raises(BadMetrics):
        parse_progress({**WORD_COUNT, **changed})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(WORD_COUNT)), values)
def test_whatever_a_field_holds_nothing_but_bad_metrics_is_raised(field, value):
    try:
        progress = parse_progress({**WORD_COUNT, field: value})
    except BadMetrics:
        return
    assert progress.input_records >= 0
    assert progress.timeline.other >= 0


def test_event_times_of_a_query_with_a_watermark():
    told = {
        "avg": "2026-11-16T00:40:06.500Z",
        "max": "2026-11-16T00:40:07.000Z",
        "min": "2026-11-16T00:40:06.000Z",
        "watermark": "2026-11-16T00:39:57.000Z",
    }
    events = parse_progress({**WORD_COUNT, "eventTime": told}).event_times
    assert (events.mean, events.oldest, events.newest) == (1794789606.5, 1794789606.0, 1794789607.0)
    assert parse_progress(WORD_COUNT).event_times is None
    # a batch without records moves the watermark alone
    assert parse_progress({**IDLE, "eventTime": {"watermark": told["watermark"]}}).event_times is None
    with pytest.raises(BadMetrics):
        parse_progress({**WORD_COUNT, "eventTime": {**told, "avg": "soon"}})


def a_batch(number: int, hits: float, misses: float, executed: bool = True) -> BatchProgress:
    timeline = BatchTimeline(0.0, 0.1, 1.0, 0.1, 1.2)
    counts = {"cache_hits": hits, "cache_misses": misses}
    return BatchProgress("run", number, 2.0 * number, timeline, 10.0, (), executed, 5, **counts)


@pytest.mark.parametrize(
    ("hits", "misses", "advised"),
    [(1_000, 9_000, True), (9_000, 1_000, False), (5_000, 5_000, False), (10, 990, False), (0, 0, False)],
)
def test_a_larger_cache_is_recommended_where_most_of_many_reads_miss(hits, misses, advised):
    found = cache_advice("words", [a_batch(number, hits, misses) for number in range(BATCHES)])
    assert (found is not None) is advised
    if found is not None:
        assert "query words: 90% of the block reads" in found
        assert "blockCacheSizeMB" in found and "spark.executor.memoryOverhead" in found


def test_a_cold_cache_alone_is_no_reason():
    cold = [a_batch(0, 0, 50_000)]
    assert cache_advice("words", cold) is None, "too few batches"
    warm = [*cold, *(a_batch(number, 40_000, 1_000) for number in range(1, BATCHES))]
    assert cache_advice("words", warm) is None
    idle = [a_batch(number, 0, 9_000, executed=False) for number in range(BATCHES)]
    assert cache_advice("words", idle) is None


def test_a_query_gives_its_advice_as_long_as_it_holds():
    words = QueryCollector("id", "words", "run", 2.0, frozenset())
    assert words.advice() == []
    for number in range(BATCHES):
        words.add(ObservedBatch(a_batch(number, 1_000, 9_000), (), 4), ())
    assert len(words.advice()) == 1 == len(words.advice())
    for number in range(BATCHES, 2 * BATCHES):
        words.add(ObservedBatch(a_batch(number, 9_000, 1_000), (), 4), ())
    assert words.advice() == []
