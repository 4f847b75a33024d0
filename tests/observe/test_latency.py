"""How old records were at their commit: arrival histories by hand, event times, and which of both counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.observe.latency import (
    Arrivals,
    Latency,
    MeasuredBy,
    arrivals_between,
    measure_latency,
    over_batches,
)
from penstock.observe.progress import EventTimes
from penstock.observe.sources.offered import OfferedSample
from tests.observe.test_collector import (
    CHAIN,
    SOCKET,
    chain_batch,
    collector,
    offset,
    progress,
    scan_batch,
    source,
)


def history(*points):
    return [OfferedSample(at, offered, 0.0) for at, offered in points]


def test_records_arrive_evenly_between_two_samples():
    # 100/s from 0 to 10 s: records 200 to 600 came from 2 s to 6 s
    found = arrivals_between(history((0, 0), (10, 1000)), 200, 600)
    assert (found.mean, found.oldest, found.records) == (pytest.approx(4.0), pytest.approx(2.0), 400)


def test_records_of_several_spans_count_each_with_its_own_rate():
    # 100 records in the first 10 s, 900 in the next: 50 came around 7.5 s, 450 around 12.5 s
    found = arrivals_between(history((0, 0), (10, 100), (20, 1000)), 50, 550)
    assert found.mean == pytest.approx((50 * 7.5 + 450 * 12.5) / 500)
    assert found.oldest == pytest.approx(5.0)


def test_what_came_before_the_first_sample_came_with_it_at_the_latest():
    found = arrivals_between(history((5, 100), (10, 200)), 0, 200)
    assert found.mean == pytest.approx((100 * 5 + 100 * 7.5) / 200)
    assert found.oldest == 5


def test_a_pause_of_the_source_is_no_division_by_zero():
    found = arrivals_between(history((0, 0), (10, 100), (20, 100), (30, 200)), 90, 110)
    assert found.mean == pytest.approx((10 * 9.5 + 10 * 20.5) / 20)


@pytest.mark.parametrize(
    ("samples", "first", "last"),
    [
        (history((0, 100)), 0, 100),
        (history((0, 0), (10, 100)), 50, 50),
        ([], 0, 10),
        # the topic was made anew: of its new records one sample says nothing yet
        (history((0, 500), (10, 900), (20, 40)), 0, 40),
    ],
)
def test_nothing_is_said_where_nothing_is_known(samples, first, last):
    assert arrivals_between(samples, first, last) is None


@example([(0.5, 0.0), (1.0, 5e-324)], 0.0, 1.0)
@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 1000)), min_size=2, max_size=8),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_arrivals_lie_within_the_history_and_the_oldest_first(steps, one, other):
    at, offered, samples = 0.0, 0.0, []
    for seconds, records in steps:
        at, offered = at + seconds, offered + records
        samples.append(OfferedSample(at, offered, 0.0))
    first, last = sorted((one * offered, other * offered))
    found = arrivals_between(samples, first, last)
    if found is not None:
        assert samples[0].at <= found.oldest <= found.mean + 1e-6 <= samples[-1].at + 1e-3


def batch(events=None, records=100):
    told = progress(1, 100.0, source(records, offset(records)), seconds=2.0)
    return replace(told, event_times=events)


ARRIVED = Arrivals(mean=97.0, oldest=95.0, records=100)


def test_a_batch_by_its_arrivals():
    # committed at 102
    assert measure_latency(batch(), [ARRIVED]) == Latency(5.0, 7.0, 100, MeasuredBy.ARRIVALS)


def test_sources_count_by_their_records():
    other = Arrivals(mean=100.0, oldest=99.0, records=300)
    found = measure_latency(batch(), [ARRIVED, other])
    assert found.mean == pytest.approx(102 - (97 + 3 * 100) / 4)
    assert found.oldest == 7.0


def test_event_times_count_with_what_happened_before_the_source():
    events = EventTimes(mean=95.5, oldest=93.0, newest=98.0)
    assert measure_latency(batch(events), [ARRIVED]) == Latency(6.5, 9.0, 100, MeasuredBy.EVENT_TIME)
    assert measure_latency(batch(events), []).by is MeasuredBy.EVENT_TIME


@pytest.mark.parametrize("mean", [-86_400.0, 99.0])
def test_history_read_again_and_a_wrong_clock_are_not_latency(mean):
    events = EventTimes(mean, mean - 1, mean + 1)
    assert measure_latency(batch(events), [ARRIVED]).by is MeasuredBy.ARRIVALS


def test_old_events_alone_tell_nothing():
    assert measure_latency(batch(EventTimes(-86_400.0, -86_400.0, -86_400.0)), []) is None
    assert measure_latency(batch(records=0), [ARRIVED]) is None


def test_batches_of_a_window_count_by_their_records():
    few, many = Latency(10.0, 12.0, 100, MeasuredBy.ARRIVALS), Latency(2.0, 3.0, 300, MeasuredBy.ARRIVALS)
    assert over_batches([few, many]) == Latency(4.0, 12.0, 400, MeasuredBy.ARRIVALS)
    assert over_batches([]) is None


def test_a_query_that_falls_behind_shows_how_long_records_waited():
    """100/s are offered, batches read 50/s: after 20 s a record waits ten seconds and more."""
    words = collector(period=5.0)
    for number in range(5):
        at, read = 5.0 * number, 250 * (number + 1)
        words.add(chain_batch(number, at, 250, read, latest=500 * (number + 1)), CHAIN)
    window = words.window(19.0, 23.0)
    # batch 4 reads records 1000 to 1250, which came from 5 s to 7.5 s, and is committed at 22 s
    assert window.latency_seconds == pytest.approx(22 - 6.25)
    assert window.oldest_latency_seconds == pytest.approx(22 - 5)
    assert window.latency_by == "arrivals at the source"


def test_a_source_that_does_not_tell_leaves_an_estimate():
    words = collector(period=5.0)
    layout = CHAIN[:1]
    words.add(scan_batch(0, 0.0, source(100, None, description=SOCKET)), layout)
    words.add(scan_batch(1, 5.0, source(100, None, description=SOCKET)), layout)
    window = words.window(0.0, 10.0)
    assert window.latency_by == "estimate"
    assert window.latency_seconds == pytest.approx(2.5 + 2.0)
    assert window.oldest_latency_seconds == pytest.approx(5.0 + 2.0)
