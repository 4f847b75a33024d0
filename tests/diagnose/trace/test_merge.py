"""Runs of events merged into order of time, against a stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnose.trace.events import EVENT_COLUMNS, Trace, Work
from penstock.diagnose.trace.merge import MOST_RUNS, find_runs
from penstock_lab.experiments.diagnosis_speed import TraceShape, generate_trace


def trace_at(times):
    """Return a trace with these times, whose other columns tell its events apart."""
    times = np.asarray(times, dtype=np.int64)
    number = np.arange(len(times))
    return Trace(
        time_us=times,
        worker=(number % 7).astype(np.int32),
        kind=(number % 4).astype(np.uint8),
        activity=(number % 10).astype(np.uint8),
        correlation=number.astype(np.int64) * 3,
        remote=(number % 5 - 1).astype(np.int32),
        work=(number + 1).astype(np.int32),
        workers=tuple(f"w{place}" for place in range(7)),
        works=(Work(),) * (len(times) + 1),
    )


def check_order(trace):
    found, order = trace.in_time_order(), np.argsort(trace.time_us, kind="stable")
    for name in EVENT_COLUMNS:
        column = getattr(trace, name)
        np.testing.assert_array_equal(getattr(found, name), column[order])
        assert getattr(found, name).dtype == column.dtype


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-50, 50), max_size=12).map(sorted), max_size=8))
def test_runs_are_merged_as_a_stable_sort_would(runs):
    check_order(trace_at([time for run in runs for time in run]))


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_any_times_at_all_are_sorted(times):
    check_order(trace_at(times))


@pytest.mark.parametrize("seed", range(3))
def test_workers_one_after_the_other_are_merged(seed):
    trace = generate_trace(TraceShape(60_000, seed=seed))
    by_worker = trace.take(np.argsort(trace.worker, kind="stable"))
    assert len(find_runs(by_worker.time_us)) == 49
    check_order(by_worker)


def make_bursts():
    """Return runs of 40,000 events that all lie in few instants, beside one that is a century off."""
    random = np.random.default_rng(1)
    runs = [np.sort(random.choice([0, 1, 2, 10**9, 10**9 + 7], 8_000)) for _ in range(5)]
    return np.concatenate([*runs, [3_155_760_000_000_000]])


def make_huddles():
    """Return runs in whole milliseconds but for a few microseconds around each, ten thousand to one."""
    random = np.random.default_rng(2)
    runs = [
        np.sort(random.integers(0, 3, 30_000) * 10**9 + random.integers(0, 400, 30_000)) for _ in range(3)
    ]
    return np.concatenate(runs)


@pytest.mark.parametrize(
    "times",
    [
        make_bursts(),
        make_huddles(),
        np.arange(30_000)[::-1],
        np.tile(np.arange(3), MOST_RUNS + 10),
        np.zeros(30_000),
        np.concatenate([np.arange(20_000), [5]]),
        np.concatenate([[2**61], np.arange(-(2**61), -(2**61) + 20_000)]),
    ],
    ids=["bursts", "huddles", "backward", "too many runs", "one instant", "one late row", "wide"],
)
def test_times_that_lie_unevenly_are_merged(times):
    check_order(trace_at(times))


def test_events_in_order_are_left_alone():
    trace = trace_at([1, 2, 2, 5])
    assert trace.in_time_order() is trace
    assert trace_at([]).in_time_order().time_us.size == 0


def test_columns_that_cannot_be_written_are_merged():
    trace = trace_at([3, 4, 1, 2])
    for name in EVENT_COLUMNS:
        getattr(trace, name).setflags(write=False)
    check_order(trace)
