"""Paths drawn at random: each critical path as often as any other, within a stated error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnose.path.draw import draw_path
from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.path.participation import cut_windows, measure_participation
from penstock.diagnose.path.summary import summarise
from penstock.diagnose.trace.events import Activity
from tests.diagnose.traces import (
    activity,
    critical_paths,
    event_lists,
    exact_shares,
    figure_3_3,
    ladder,
    ladders,
    message,
    ordered,
    plain_edges,
    project,
    trace_of,
)

# Seeds are fixed. A mean of draws may be five standard errors off, which chance alone exceeds once in two
# million; three draws more are allowed for paths so rare that their number is far from normal.
STANDARD_ERRORS, FEW = 5, 3


def draw_often(graph, window, number):
    """Return the mean share of each activity, and how often each event of the window was passed."""
    shares, passed = dict.fromkeys((kind.label for kind in Activity), 0.0), np.zeros(len(graph.trace))
    for seed in range(number):
        path, events = draw_path(graph, window, seed)
        for kind, share in path.items():
            shares[kind] += share / number
        passed[events] += 1 / number
    return shares, passed


def is_near(found, exact, number):
    """Return whether a mean of values between 0 and 1 fits its expectation."""
    error = math.sqrt(float(exact) * (1 - float(exact)) / number)
    few = FEW / number if 0 < exact < 1 else 1e-9
    return abs(found - float(exact)) <= STANDARD_ERRORS * error + few


def cut_one(events, start=None, end=None, threshold=0):
    graph = build_graph(trace_of(events), gap_threshold_us=threshold)
    (window,) = cut_windows(graph, start_us=start, end_us=end)
    return graph, window


def test_a_message_across_the_end_is_drawn_as_often_as_the_worker():
    events = ordered(activity("p", 0, 20), message("p", 5, "q", 15, 1), activity("q", 15, 20))
    graph, window = cut_one(events, 0, 10)
    assert summarise(graph, measure_participation(graph, window)).activity == pytest.approx(
        {"processing": 0.75, "data message": 0.25}
    )
    shares, _ = draw_often(graph, window, 2_000)
    assert is_near(shares["processing"], 0.75, 2_000)
    assert is_near(shares["data message"], 0.25, 2_000)


def test_edges_that_span_the_window_are_drawn():
    events = ordered(
        activity("p", 0, 20),
        message("p", 1, "q", 19, 1),
        message("r", 2, "q", 18, 2),
        activity("r", 0, 20, Activity.SERIALIZATION),
        activity("s", 0, 5, Activity.BUFFER),
        activity("s", 5, 20, Activity.BUFFER),
    )
    graph, window = cut_one(events, 4, 10)
    shares, passed = draw_often(graph, window, 2_000)
    expected = {"processing": 0.2, "serialization": 0.2, "data message": 0.4, "buffer": 0.2}
    assert all(is_near(shares[kind], share, 2_000) for kind, share in expected.items())
    assert passed[4:].sum() == pytest.approx(2 * shares["buffer"])


def test_a_path_over_an_edge_that_spans_the_window_passes_no_event():
    events = ordered(activity("p", 0, 2), message("p", 2, "q", 12, 7), activity("q", 12, 14))
    shares, passed = draw_path(*cut_one(events, 4, 9))
    assert shares == {"data message": 1.0}
    assert len(passed) == 0


def test_a_trace_in_which_all_wait_has_no_path():
    events = activity("p", 0, 10, Activity.WAITING)
    shares, passed = draw_path(*cut_one(events))
    assert (shares, len(passed)) == ({}, 0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(event_lists(), st.sampled_from([None, 7]))
def test_every_critical_path_is_drawn_as_often_as_any_other(events, length):
    graph, number = build_graph(trace_of(events), gap_threshold_us=0), 300
    for window in cut_windows(graph, length_us=length):
        edges = project(
            plain_edges(events, 0), events, window.start_us, window.end_us, window.low, window.high
        )
        paths, longest = critical_paths(edges)
        if longest == 0:
            continue
        shares, passed = draw_often(graph, window, number)
        for kind in Activity:
            spent = [sum(e.ends - e.begins for e in path if e.activity == kind) / longest for path in paths]
            assert is_near(shares[kind.label], np.mean(spent), number)
        for event in range(window.low, window.high):
            through = [any(event in (edge.tail, edge.head) for edge in path) for path in paths]
            assert is_near(passed[event], np.mean(through), number)


@pytest.mark.parametrize("rungs", [3, 127, 255, 256, 511])
def test_draws_have_the_exact_shares_whatever_the_sizes_of_the_counts(rungs):
    events, number = ladders(rungs, times=2), 400
    graph, window = cut_one(events)
    exact, _ = exact_shares(plain_edges(events, 0))
    shares, _ = draw_often(graph, window, number)
    for kind in (Activity.PROCESSING, Activity.DATA_MESSAGE):
        share = sum(share for edge, share in exact.items() if edge.activity == kind)
        assert is_near(shares[kind.label], share, number)


@pytest.mark.parametrize("rungs", [254, 255, 256])
def test_ends_whose_counts_have_a_smaller_exponent_than_the_total_are_drawn(rungs):
    graph, window = cut_one(ladder(rungs))
    found = measure_participation(graph, window)
    _, passed = draw_often(graph, window, 400)
    ends = np.nonzero(graph.trace.time_us == window.end_us)[0]
    assert found.paths_log10 == pytest.approx((rungs + 1) * math.log10(2))
    assert all(is_near(passed[event], 0.5, 400) for event in ends)


def test_a_path_goes_back_in_time_from_end_to_start():
    graph, window = cut_one(ladder(8))
    shares, events = draw_path(graph, window, seed=3)
    assert sum(shares.values()) == pytest.approx(1)
    times = graph.trace.time_us[events]
    assert (times[0], times[-1]) == (window.end_us, window.start_us)
    assert all(np.diff(times) <= 0)


def test_single_paths_average_to_participation():
    graph, window = cut_one(figure_3_3())
    found = summarise(graph, measure_participation(graph, window))
    shares, _ = draw_often(graph, window, 400)
    assert all(is_near(shares[kind], share, 400) for kind, share in found.activity.items())
