"""Figures of a run, checked on runs whose answers are plain."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_lab.experiments.batches import (
    BatchSeen,
    SlotsSeen,
    find_size_changes,
    find_slots,
    read_reports,
    sum_backlog,
    sum_slot_seconds,
    time_settled_batch,
)


def a_report(batch, rows, *offsets):
    sources = [{"startOffset": start, "endOffset": end} for start, end in offsets]
    took = {"timestamp": f"2025-01-01T00:00:0{batch}Z", "durationMs": {"triggerExecution": 1500}}
    return {"batchId": batch, **took, "numInputRows": rows, "sources": sources}


def test_batches_are_read_once_and_triggers_without_records_are_not():
    five, nine, eleven = ({"records": count} for count in (5, 9, 11))
    reports = [
        a_report(0, 0, (None, None)),
        a_report(0, 5, (None, five)),
        a_report(1, 0, (five, five)),
        a_report(1, 8, (five, eleven), (five, nine)),
    ]
    first, second = read_reports(reports)
    assert (first.seconds, first.records, first.first, first.records_read) == (1.5, 5, 0, 5)
    assert (second.start - first.start, second.first, second.records_read) == (1.0, 5, 9), "the one behind"


def samples(*pairs):
    return [SlotsSeen(at, slots) for at, slots in pairs]


def test_slot_seconds_count_what_is_held_within_the_span():
    seen = samples((0, 3), (10, 9), (20, 6))
    assert sum_slot_seconds(seen, 0, 30) == 3 * 10 + 9 * 10 + 6 * 10
    assert sum_slot_seconds(seen, 5, 25) == 3 * 5 + 9 * 10 + 6 * 5
    assert sum_slot_seconds(seen, 22, 24) == 12


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=20), st.integers(0, 30), st.integers(1, 30))
def test_slot_seconds_add_up_over_adjacent_spans(sizes, start, length):
    seen = samples(*enumerate(sizes))
    start, end = float(start), float(start + length)
    middle = (start + end) / 2
    whole = sum_slot_seconds(seen, start, end)
    assert whole == pytest.approx(sum_slot_seconds(seen, start, middle) + sum_slot_seconds(seen, middle, end))


def test_backlog_of_a_steady_run_is_a_sawtooth():
    # 10 records a second, read every 6 s: the mean wait is 30 records
    batches = [BatchSeen(6.0 * k, 2.0, 60, 60 * k) for k in range(1, 11)]
    total = sum_backlog(batches, lambda t: 10 * t, 0, 60)
    assert total == pytest.approx(30 * 60, rel=0.01)


def test_backlog_of_a_stalled_run_grows_with_the_square_of_time():
    assert sum_backlog([], lambda t: 10 * t, 0, 20) == pytest.approx(10 * 20**2 / 2, rel=0.01)


def test_changes_close_together_are_one_step():
    seen = samples((0, 3), (1, 3), (2, 6), (3, 9), (4, 15), (30, 15), (31, 9), (60, 9))
    assert find_size_changes(seen, together_seconds=5) == samples((4, 15), (31, 9))
    assert find_size_changes(seen, together_seconds=0) == samples((2, 6), (3, 9), (4, 15), (31, 9))
    assert find_size_changes(samples((0, 3)), 5) == []


def test_slots_at_a_moment():
    seen = samples((0, 3), (10, 9))
    assert [find_slots(seen, moment) for moment in (0, 9.9, 10, 99)] == [3, 3, 9, 9]


def test_settled_batches_are_whole_ordinary_and_within_the_span():
    batches = [
        BatchSeen(0, 9.0, 60, 60),
        BatchSeen(10, 30.0, 400, 460),
        BatchSeen(40, 4.0, 61, 521),
        BatchSeen(46, 5.0, 60, 581),
        BatchSeen(52, 3.0, 59, 640),
        BatchSeen(58, 8.0, 60, 700),
    ]
    assert time_settled_batch(batches, 5, 60, records=60) == 4.0
    assert time_settled_batch(batches, 5, 39, records=60) is None
