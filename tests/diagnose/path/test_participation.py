"""Critical participation against the examples of the thesis and against brute force."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.path.participation import cut_windows, measure_participation
from penstock.diagnose.path.shares import share_paths
from penstock.diagnose.trace.events import Activity
from penstock_lab.experiments.diagnosis_speed import TraceShape, generate_trace
from tests.diagnose.traces import (
    Event,
    Kind,
    activity,
    event_lists,
    exact_shares,
    figure_3_3,
    ladder,
    ladders,
    message,
    ordered,
    plain_edges,
    plain_participation,
    project,
    trace_of,
)


def total(found):
    return found.local.sum() + found.message.sum() + found.crossing.sum() + found.spanning.sum()


def place(events, worker, time, kind):
    return next(i for i, e in enumerate(events) if (e.worker, e.time, e.kind) == (worker, time, kind))


def figure_3_2():
    """Two workers; the window is [2, 7]. Two ways lead to g, three leave h: six paths."""
    return ordered(
        activity("w1", 0, 2),
        activity("w2", 0, 3),  # (b, g), cut at the start of the window
        message("w1", 1, "w2", 3, 1),  # under way when the window starts
        [
            Event(3, "w2", Kind.START, Activity.SERIALIZATION),
            Event(4, "w2", Kind.END, Activity.SERIALIZATION),
        ],
        activity("w2", 4, 9),
        message("w2", 4, "w1", 5, 2),
        activity("w1", 5, 6, Activity.BUFFER),  # (d, i)
        message("w2", 5, "w1", 6, 3),
        activity("w1", 6, 9),
    )


def test_figure_3_2_has_six_paths_and_the_participations_of_the_text():
    events = figure_3_2()
    graph = build_graph(trace_of(events), gap_threshold_us=0)
    (window,) = cut_windows(graph, start_us=2, end_us=7)
    found = measure_participation(graph, window)
    at = window.low
    assert found.length_us == 5
    assert 10**found.paths_log10 == pytest.approx(6)
    g_to_h = found.local[place(events, "w2", 4, Kind.END) - at]
    d_to_i = found.local[place(events, "w1", 6, Kind.END) - at]
    assert g_to_h == pytest.approx(0.2)
    assert d_to_i == pytest.approx(0.066, abs=0.001)
    # Centrality is the participation without length and normalisation (equation 3.3).
    assert g_to_h * 6 * 5 / 1 == pytest.approx(6)
    assert d_to_i * 6 * 5 / 1 == pytest.approx(2)


def test_figure_3_3_ranks_the_shared_activities_and_leaves_out_those_before_a_wait():
    events = figure_3_3()
    trace = trace_of(events)
    graph = build_graph(trace, gap_threshold_us=0)
    (window,) = cut_windows(graph)
    found = measure_participation(graph, window)
    assert 10**found.paths_log10 == pytest.approx(9)
    centrality = {}
    for operator in ("x-u", "u-v", "v-z", "a-b", "c-d"):
        end = next(i for i, e in enumerate(events) if e.operator == operator and e.kind == Kind.END)
        start = next(i for i, e in enumerate(events) if e.operator == operator and e.kind == Kind.START)
        length = events[end].time - events[start].time
        centrality[operator] = round(found.local[end] * 9 * 10 / length)
    assert centrality == {"x-u": 6, "u-v": 9, "v-z": 6, "a-b": 0, "c-d": 0}
    assert total(found) == pytest.approx(1)


@settings(max_examples=300, deadline=None)
@given(event_lists(), st.integers(0, 4), st.sampled_from([None, 5, 9]))
def test_equals_the_enumeration_of_all_paths(events, threshold, length):
    graph = build_graph(trace_of(events), gap_threshold_us=threshold)
    edges = plain_edges(events, threshold)
    for window in cut_windows(graph, length_us=length):
        found = measure_participation(graph, window)
        kept = project(edges, events, window.start_us, window.end_us, window.low, window.high)
        shares, paths, longest = plain_participation(kept)
        assert found.length_us == longest
        if longest == 0:
            assert total(found) == 0
            continue
        assert 10**found.paths_log10 == pytest.approx(paths)
        assert total(found) == pytest.approx(1)
        compare(found, window, shares, graph)


@settings(max_examples=100, deadline=None)
@given(event_lists(), st.integers(0, 4))
def test_the_exact_reference_equals_the_enumeration_of_all_paths(events, threshold):
    edges = plain_edges(events, threshold)
    listed, number, longest = plain_participation(edges)
    shares, paths = exact_shares(edges)
    assert paths.length == longest
    if longest:
        assert paths.number == number
        assert {edge: share for edge, share in shares.items() if share} == {
            edge: share for edge, share in listed.items() if share
        }


def compare(found, window, shares, graph):
    workers = graph.trace.workers
    local, messages = np.zeros_like(found.local), np.zeros_like(found.message)
    crossing, spanning = np.zeros_like(found.crossing), 0.0
    for edge, share in shares.items():
        inside = isinstance(edge.head, int)
        if edge.is_message and inside:
            messages[edge.head - window.low] += float(share)
        elif edge.is_message and isinstance(edge.tail, int):
            messages[edge.tail - window.low] += float(share)
        elif edge.is_message:
            spanning += float(share)
        elif inside:
            local[edge.head - window.low] += float(share)
        else:
            crossing[workers.index(edge.head[1])] += float(share)
    np.testing.assert_allclose(found.local, local, atol=1e-12)
    np.testing.assert_allclose(found.message, messages, atol=1e-12)
    np.testing.assert_allclose(found.crossing, crossing, atol=1e-12)
    assert found.spanning.sum() == pytest.approx(spanning)


@pytest.mark.parametrize("rungs", [3, 300, 1100, 5000])
def test_path_counts_beyond_any_float_stay_exact(rungs):
    graph = build_graph(trace_of(ladder(rungs)))
    (window,) = cut_windows(graph)
    found = measure_participation(graph, window)
    assert found.paths_log10 == pytest.approx((rungs + 1) * math.log10(2))
    assert total(found) == pytest.approx(1)
    assert found.local.sum() == pytest.approx((4 - 1.5) / 4, rel=0.2)


mantissas = st.floats(1.0, 2.0**256, exclude_max=True)
exponents = st.integers(0, 4)


@given(mantissas, exponents, mantissas, exponents, mantissas, st.integers(0, 8))
def test_a_share_equals_the_exact_quotient_of_its_counts(m1, k1, m2, k2, m, k):
    exact = Fraction(m1) * Fraction(m2) / Fraction(m) * Fraction(2) ** (256 * (k1 + k2 - k))
    if exact <= 1 + Fraction(1, 10**12):
        share = share_paths(m1, k1, m2, k2, 1.0 / m, k)
        assert share == pytest.approx(float(exact), rel=1e-12, abs=2.0**-255)


def test_a_count_that_was_rounded_up_to_the_next_power_keeps_its_share():
    whole = 2.0**256 * (1 - 2.0**-53)
    assert share_paths(1.0, 1, 1.0, 0, 1.0 / whole, 0) == pytest.approx(1)


RUNGS = (1, 25, 121, 241, *range(253, 259), 300, 383, 384, *range(509, 514), 640)


@pytest.mark.parametrize("rungs", RUNGS)
def test_shares_equal_exact_integers_whatever_the_sizes_of_the_counts(rungs):
    check_exactly(ladders(rungs, times=4), threshold=0)


@pytest.mark.parametrize(("size", "seed"), [(26_175, 1047), (26_600, 1064), (20_000, 1)])
def test_an_ordinary_trace_equals_exact_integers(size, seed):
    trace = generate_trace(TraceShape(size, workers=12, events_per_second=3_000, seed=seed))
    events = [
        Event(int(time), str(worker), Kind(kind), Activity(doing), str(remote), int(correlation))
        for time, worker, kind, doing, remote, correlation in zip(
            trace.time_us, trace.worker, trace.kind, trace.activity, trace.remote, trace.correlation,
            strict=True,
        )
    ]  # fmt: skip
    check_exactly(events, threshold=0)


def check_exactly(events, threshold):
    """Compare a window of all events with exact shares, each within a relative error of 1e-9."""
    graph = build_graph(trace_of(events), gap_threshold_us=threshold)
    shares, paths = exact_shares(plain_edges(events, threshold))
    (window,) = cut_windows(graph)
    found = measure_participation(graph, window)
    assert found.length_us == paths.length
    # math.log10 takes integers of any size
    assert found.paths_log10 == pytest.approx(math.log10(paths.number))
    assert total(found) == pytest.approx(1, rel=1e-9)
    local, messages = np.zeros_like(found.local), np.zeros_like(found.message)
    for edge, share in shares.items():
        (messages if edge.is_message else local)[edge.head] += float(share)
    np.testing.assert_allclose(found.local, local, rtol=1e-9, atol=1e-70)
    np.testing.assert_allclose(found.message, messages, rtol=1e-9, atol=1e-70)


def test_waiting_is_never_on_a_critical_path():
    events = ordered(activity("p", 0, 10), activity("q", 0, 3), activity("q", 3, 8, Activity.WAITING),
                     message("p", 6, "q", 8, 1), activity("q", 8, 10))  # fmt: skip
    graph = build_graph(trace_of(events), gap_threshold_us=0)
    (window,) = cut_windows(graph)
    found = measure_participation(graph, window)
    waiting = graph.edge_activity == Activity.WAITING
    assert waiting.any()
    assert found.local[waiting].sum() == 0


def test_windows_cover_the_span_once_and_project_what_crosses():
    graph = build_graph(trace_of(figure_3_3()), gap_threshold_us=0)
    pieces = list(cut_windows(graph, length_us=4))
    assert [(piece.start_us, piece.end_us) for piece in pieces] == [(0, 4), (4, 8), (8, 10)]
    assert [piece.low for piece in pieces[1:]] == [piece.high for piece in pieces[:-1]]
    assert pieces[-1].high == len(graph.trace)
    assert all(total(measure_participation(graph, piece)) == pytest.approx(1) for piece in pieces)


def test_a_message_under_way_during_a_whole_window_is_one_of_its_paths():
    events = ordered(activity("p", 0, 2), message("p", 2, "q", 12, 7), activity("q", 12, 14))
    graph = build_graph(trace_of(events), gap_threshold_us=0)
    (window,) = cut_windows(graph, start_us=4, end_us=9)
    found = measure_participation(graph, window)
    assert found.spanning.tolist() == [1.0]


def test_silent_spans_and_uncaused_events_are_reported():
    events = ordered(activity("p", 0, 2), activity("p", 2, 5, Activity.WAITING), activity("q", 5, 6),
                     activity("p", 5, 6))  # fmt: skip
    graph = build_graph(trace_of(events), gap_threshold_us=0)
    (window,) = cut_windows(graph)
    checks = measure_participation(graph, window).instrumentation
    assert (checks.uncaused_events, checks.silent_spans) == (1, 1)
