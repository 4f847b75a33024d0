"""Offsets of the known sources become records; samples become an offered rate and a backlog."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.sources import (
    OfferedSample,
    OffsetReader,
    offered_rate,
    reader_for,
    register_source,
    unread_records,
)

KAFKA = "KafkaV2[Subscribe[events, clicks]]"
RATE = "RateStreamV2[rowsPerSecond=1000, rampUpTimeSeconds=0, numPartitions=3"
RAMPING = "RateStreamV2[rowsPerSecond=1000, rampUpTimeSeconds=5, numPartitions=3"
MICRO_BATCH = (
    "RatePerMicroBatchStream[rowsPerBatch=50, numPartitions=4, startTimestamp=0, advanceMillisPerBatch=1000]"
)
FILES = "FileStreamSource[file:/data/in]"
PYTHON = "org.apache.spark.sql.execution.python.streaming.PythonMicroBatchStreamWithAdmissionControl@48364695"


def cumulative(description, offset):
    return reader_for(description).records(offset, description)


@pytest.mark.parametrize(
    ("description", "offset", "records"),
    [
        (KAFKA, {"events": {"0": 10, "1": 5}, "clicks": {"0": 7}}, 22),
        (RATE, 40, 40_000),
        (MICRO_BATCH, {"offset": 350, "timestamp": 7000}, 350),
        (PYTHON, {"records": 600, "start_ms": 1000000}, 600),
        ("TextSocketV2[host: localhost, port: 9999]", 12, None),
    ],
)
def test_offsets_count_records(description, offset, records):
    assert cumulative(description, offset) == records


def test_a_rate_that_ramps_up_is_not_stated_by_its_offsets():
    assert cumulative(RAMPING, 40) is None


def test_a_file_source_is_listed_because_its_offsets_count_batches():
    assert reader_for(FILES).listed
    assert cumulative(FILES, {"logOffset": 4}) is None


@pytest.mark.parametrize("description", [KAFKA, RATE, MICRO_BATCH, FILES, PYTHON, "", "unheard of"])
@given(offset=st.none() | st.integers() | st.text() | st.dictionaries(st.text(), st.none() | st.text()))
def test_an_offset_of_another_form_says_nothing(description, offset):
    records = cumulative(description, offset)
    assert records is None or isinstance(records, float)


def test_infinite_numbers_in_an_offset_say_nothing():
    assert cumulative(PYTHON, {"records": math.nan}) is None
    assert cumulative(PYTHON, {"records": -3}) is None
    assert cumulative(KAFKA, {"events": {"0": math.inf}}) is None


def test_a_source_of_ones_own_registers_a_reader_and_the_latest_wins():
    def position(offset, _description):
        return float(json.loads(offset)["position"])

    register_source(OffsetReader("MyQueue[first", lambda _offset, _description: None))
    register_source(OffsetReader("MyQueue[", position))
    assert cumulative("MyQueue[first]", '{"position": 80}') == 80
    assert cumulative("MyQueue[first]", "not JSON") is None
    assert cumulative("HisQueue[first]", '{"position": 80}') is None


def at(moment, offered, read=0.0):
    return OfferedSample(moment, offered, read)


def test_offered_rate_reaches_back_to_the_last_sample_before_the_window():
    samples = [at(0, 0), at(8, 800), at(12, 1600), at(18, 2800)]
    assert offered_rate(samples, since=10) == (2800 - 800) / 10


def test_offered_rate_of_a_short_history_takes_what_there_is():
    assert offered_rate([at(11, 100), at(16, 600)], since=10) == 100


@pytest.mark.parametrize("samples", [[], [at(5, 100)], [at(5, 100), at(5, 200)], [at(5, 100), at(9, 50)]])
def test_offered_rate_is_unknown(samples):
    """Too few samples, no time between them, or a topic that was made anew."""
    assert math.isnan(offered_rate(samples, since=4))


def test_no_sample_in_this_window_means_the_rate_of_the_last_ones():
    """A batch longer than the window: the newest sample is from before it."""
    assert offered_rate([at(0, 0), at(10, 500), at(20, 1500)], since=30) == 100


def test_backlog_is_what_exceeds_the_two_periods_that_a_healthy_query_has_open():
    # 100/s for 4 s since the sample: 400; 1,000 were left unread; 2 periods of 5 s hold 1,000 anyway
    assert unread_records(100, 5, at(20, 9000, read=8000), now=24) == 1000 + 400 - 1000


def test_a_query_that_keeps_up_has_no_backlog():
    assert unread_records(100, 10, at(20, 9000, read=9000), now=30) == 0


def test_with_nothing_offered_any_more_all_that_is_unread_is_backlog():
    assert unread_records(0, 10, at(20, 9000, read=8000), now=60) == 1000


def test_a_clock_that_jumped_back_adds_nothing():
    assert unread_records(100, 1, at(20, 9000, read=8000), now=10) == 800


amounts = st.floats(0, 1e9)


@given(st.lists(st.tuples(st.floats(0, 1e6), amounts), max_size=10), st.floats(0, 1e6))
def test_a_rate_is_never_negative_or_infinite(points, since):
    rate = offered_rate([at(moment, offered) for moment, offered in sorted(points)], since)
    assert math.isnan(rate) or 0 <= rate < math.inf


@given(st.floats(0, 1e6), st.floats(0, 100), amounts, amounts, st.floats(0, 1e6))
def test_backlog_is_never_negative_and_grows_as_time_passes(rate, period, offered, read, now):
    sample = at(100, offered, read)
    assert 0 <= unread_records(rate, period, sample, now) <= unread_records(rate, period, sample, now + 1)
