"""A paced operator takes its records' service time, no more and no less in the long run."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_lab.workloads.paced import SHORTEST_SLEEP, Pacer, pace_batches


class LateTimer:
    """A clock whose sleeps end late by a fixed amount, as real ones do."""

    def __init__(self, late=0.0):
        self.now = 100.0
        self.late = late
        self.sleeps = []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.sleeps.append(seconds)
        self.now += seconds + self.late


def pacer(seconds_per_record, late=0.0):
    timer = LateTimer(late)
    return Pacer(seconds_per_record, timer.sleep, timer.clock), timer


@settings(deadline=None)
@given(st.lists(st.integers(0, 500), max_size=50), st.floats(1e-6, 0.01))
def test_time_slept_is_the_service_time(batches, seconds_per_record):
    subject, timer = pacer(seconds_per_record)
    for records in batches:
        subject.serve(records)
    subject.settle()
    assert timer.now - 100 == pytest.approx(sum(batches) * seconds_per_record, abs=1e-6)


@settings(deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=50), st.floats(0, 0.0009))
def test_lateness_does_not_add_up(batches, late):
    subject, timer = pacer(0.002, late)
    for records in batches:
        subject.serve(records)
    assert timer.now - 100 == pytest.approx(sum(batches) * 0.002, abs=late + 1e-6)


def test_debts_below_a_millisecond_wait():
    subject, timer = pacer(0.0001)
    for _ in range(35):
        subject.serve(1)
    assert len(timer.sleeps) == 3
    assert all(seconds >= SHORTEST_SLEEP * 0.999 for seconds in timer.sleeps)
    subject.settle()
    assert sum(timer.sleeps) == pytest.approx(0.0035)


def test_nothing_served_is_nothing_slept():
    subject, timer = pacer(0.01)
    subject.serve(0)
    subject.settle()
    assert timer.sleeps == []


def test_batches_pass_through_in_order_each_after_its_time():
    subject, timer = pacer(0.01)
    batches = [pa.array(range(count)) for count in (3, 0, 5)]
    served = pace_batches(0.01, lambda batch: batch, subject)(iter(batches))
    seen = [(timer.now - 100, len(batch)) for batch in served]
    assert [count for _, count in seen] == [3, 0, 5]
    assert [when for when, _ in seen] == pytest.approx([0.03, 0.03, 0.08])
    assert all(earlier <= later for (earlier, _), (later, _) in pairwise(seen))
