"""Windows cut out of a trace give the same answer as windows inside it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.diagnose.diagnosis import diagnose_trace
from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.path.layout import cut_out_window, lay_out, mark_open
from penstock.diagnose.path.participation import cut_windows, measure_participation
from penstock.diagnose.path.spans import Span
from penstock.diagnose.path.summary import summarise, summarise_trace
from penstock.diagnose.trace.events import read_trace
from penstock.errors import BadInput
from penstock_lab.experiments.diagnosis_speed import TraceShape, generate_trace
from tests.diagnose.traces import event_lists, message, ordered, same, trace_of

# a worker that sends and then waits beyond the window, while no path spans the window
WAITS_BEHIND_A_SEND = ordered(
    message("q", 0, "r", 0, 1), message("p", 1, "r", 4, 0), message("r", 2, "q", 2, 2)
)


@example(WAITS_BEHIND_A_SEND, 3)
@settings(max_examples=300, deadline=None)
@given(event_lists(), st.sampled_from([3, 5, 9]))
def test_a_window_cut_out_equals_the_window_inside(events, length):
    graph = build_graph(trace_of(events), gap_threshold_us=0)
    inside = mark_open(graph.trace.worker, graph.trace.kind, len(graph.trace.workers))
    for window in cut_windows(graph, length):
        expected = summarise(graph, measure_participation(graph, window))
        alone = list(summarise_trace(cut_out_window(graph, window, inside), None, 0))
        if expected.length_us == 0:
            assert all(item.length_us == 0 for item in alone)
            continue
        same(alone[0], expected)


def test_laid_out_files_are_read_back_as_the_windows_of_the_trace(tmp_path):
    trace = generate_trace(TraceShape(6_000, workers=5, events_per_second=2_000))
    paths = lay_out(trace, tmp_path, "app-1", 1_000_000)
    assert len(paths) == 3
    graph = build_graph(trace)
    for path, window in zip(paths, cut_windows(graph, 1_000_000), strict=True):
        expected = summarise(graph, measure_participation(graph, window))
        (alone,) = summarise_trace(read_trace(path))
        same(alone, expected)


def test_a_folder_that_was_laid_out_is_diagnosed_window_by_window(tmp_path):
    trace = generate_trace(TraceShape(6_000, workers=5, events_per_second=2_000))
    paths = lay_out(trace, tmp_path, "app-1", 1_000_000)
    found = diagnose_trace(paths[0].parent, Span())
    expected = list(summarise_trace(trace, 1_000_000))
    for one, other in zip(found.windows, expected, strict=True):
        same(one, other)
    assert sum(found.whole.activity.values()) == pytest.approx(1)
    late = diagnose_trace(paths[0].parent, Span(start_us=1_500_000))
    assert [window.start_us for window in late.windows] == [1_500_000, expected[2].start_us]
    with pytest.raises(BadInput, match="nothing lies in this span"):
        diagnose_trace(paths[0].parent, Span(end_us=-5))
