"""Offsets of the known sources become records; samples become an offered rate and a backlog."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.sources.offered import (
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


def test_the_rate_is_that_of_the_samples_nearest_to_the_window():
    samples = [at(0, 0), at(8, 800), at(12, 1600), at(18, 2800)]
    assert offered_rate(samples, 10, 20) == 200


def test_offered_rate_of_a_short_history_takes_what_there_is():
    assert offered_rate([at(11, 100), at(16, 600)], 10, 20) == 100


@pytest.mark.parametrize("samples", [[], [at(5, 100)], [at(5, 100), at(5, 200)], [at(5, 100), at(9, 50)]])
def test_offered_rate_is_unknown(samples):
    """Too few samples, no time between them, or a topic that was made anew."""
    assert math.isnan(offered_rate(samples, 4, 14))


def test_a_topic_made_anew_counts_from_its_beginning():
    samples = [at(0, 9000), at(5, 9500), at(10, 0), at(15, 100), at(20, 200)]
    assert offered_rate(samples, 10, 20) == 20


def test_no_sample_in_this_window_means_the_rate_of_the_last_ones():
    """A batch longer than the window: the newest sample is from before it."""
    assert offered_rate([at(0, 0), at(10, 500), at(20, 1500)], 30, 40) == 100


def test_a_long_batch_before_the_window_does_not_drag_the_rate():
    """81/s for 90 s, then 330/s in batches of 5 s: the rate of now must not take minutes to show."""
    samples = [at(0, 0), at(90, 7290), at(95, 8940), at(100, 10590)]
    assert offered_rate(samples, 91, 101) == 330


def test_a_step_shows_within_a_window():
    steady = [at(5.0 * n, 500.0 * n) for n in range(11)]
    stepped = [*steady, at(55, 8000), at(60, 11000)]
    assert offered_rate(stepped[:-1], 46, 56) == (600 + 100) / 2
    assert offered_rate(stepped, 51, 61) == 600


@pytest.mark.parametrize("idle", [10, 60, 600])
def test_idle_time_is_no_part_of_the_rate_when_input_returns(idle):
    """Spark reports every 10 s while there is nothing to do, and then with every batch."""
    busy = [at(5.0 * n, 500.0 * n) for n in range(5)]
    flat = [at(20 + 10.0 * n, 2000) for n in range(1, idle // 10 + 1)]
    back = [at(20 + idle + 5.0 * n, 2000 + 1000.0 * n) for n in (1, 2, 3)]
    samples = [*busy, *flat, *back]
    end = samples[-1].at
    assert offered_rate(samples, end - 10, end) == 200
    assert offered_rate(samples[:-1], end - 15, end - 5) == pytest.approx(200, rel=0.5)


def test_what_comes_in_bursts_is_a_mean_from_burst_to_burst():
    """3,000 records every 30 s, looked at every 5 s."""
    samples = [at(5.0 * n, 3000.0 * (n // 6)) for n in range(40)]
    for end in range(20, 40):
        seen = samples[: end + 1]
        assert offered_rate(seen, 5.0 * end - 10, 5.0 * end) == pytest.approx(100, rel=0.2)


def test_nothing_comes_any_more():
    samples = [at(5.0 * n, 500.0 * min(n, 6)) for n in range(12)]
    assert offered_rate(samples, 45, 55) == 0


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
    rate = offered_rate([at(moment, offered) for moment, offered in sorted(points)], since, since + 10)
    assert math.isnan(rate) or 0 <= rate < math.inf


@given(st.floats(0, 1e6), st.floats(0, 100), amounts, amounts, st.floats(0, 1e6))
def test_backlog_is_never_negative_and_grows_as_time_passes(rate, period, offered, read, now):
    sample = at(100, offered, read)
    assert 0 <= unread_records(rate, period, sample, now) <= unread_records(rate, period, sample, now + 1)
