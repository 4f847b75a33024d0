"""What does not fit into memory at once is analysed part by part, with the same windows as otherwise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.diagnose.diagnosis import diagnose_log, diagnose_trace
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.path.parts import (
    analyse_log_parts,
    analyse_trace_parts,
    close_activities,
    find_needed_events,
    measure_log_density,
)
from penstock.diagnose.path.spans import (
    BYTES_PER_EVENT,
    Span,
    cut_to_fit,
    find_fitting_window,
    find_free_memory,
    measure_density,
)
from penstock.diagnose.path.summary import summarise_graph
from penstock.diagnose.trace.events import Kind, write_trace
from penstock.diagnose.trace.from_log import build_timelines
from penstock.errors import BadInput
from penstock.view.perfetto import build_perfetto_trace
from penstock_lab.experiments.diagnosis_speed import TraceShape, generate_trace
from tests.diagnose.logs import many_jobs
from tests.diagnose.traces import activity, event_lists, message, ordered, same, trace_of

SECOND = 1_000_000


def spread(*counts):
    """A density with so many events in each second."""
    times = np.concatenate([np.linspace(n, n + 1, count, endpoint=False) for n, count in enumerate(counts)])
    return measure_density([((times * SECOND).astype(np.int64), None)], 0, len(counts) * SECOND)


def room(events):
    return events * BYTES_PER_EVENT


def test_what_fits_is_not_cut():
    assert cut_to_fit(spread(50, 50), Span(memory=room(100))) == [(0, 2 * SECOND)]
    part = Span(start_us=SECOND, memory=room(60))
    assert cut_to_fit(spread(50, 50), part) == [(SECOND, 2 * SECOND)]


def test_windows_without_number_are_refused():
    with pytest.raises(BadInput, match=r"--window: 0\.001ms cuts 2 s into more than 1000000 windows"):
        cut_to_fit(spread(5, 5), Span(1))


def test_what_does_not_fit_is_cut_between_windows():
    cuts = cut_to_fit(spread(*[100] * 12), Span(SECOND, memory=room(820)))
    assert cuts == [(start * SECOND, (start + 2) * SECOND) for start in range(0, 12, 2)]


def test_the_refusal_tells_what_is_needed_and_a_window_that_fits():
    # 800 events do not fit into room for 400; a window has a quarter of that, and a fifth of it is kept back
    with pytest.raises(
        BadInput, match=r"a window of 8 s holds 800 events and needs 0 MiB, .* --window 800ms fits"
    ):
        cut_to_fit(spread(*[100] * 8), Span(memory=room(400)))
    with pytest.raises(BadInput, match=r"a window of 4 s .* with what surrounds it, .* --window 800ms fits"):
        cut_to_fit(spread(*[100] * 8), Span(4 * SECOND, memory=room(400)))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=2, max_size=20), st.integers(40, 4000))
def test_the_window_that_is_named_is_accepted_and_its_parts_cover_all(counts, events):
    density = spread(*counts)
    assume(density.events > events)
    span = Span(memory=room(events))
    window = find_fitting_window(density, span.clip(0, len(counts) * SECOND), span)
    cuts = cut_to_fit(density, Span(window, memory=room(events)))
    assert (cuts[0][0], cuts[-1][1]) == (0, len(counts) * SECOND)
    assert all(before[1] == after[0] for before, after in pairwise(cuts))
    assert all(start % window == 0 for start, _ in cuts)


def windows_of(part):
    return list(summarise_graph(part.graph, 2 * SECOND, part.start_us, part.end_us))


def test_a_log_in_parts_has_the_windows_of_the_whole():
    lines = build_timelines(read_log(many_jobs(12).lines))
    (whole,) = analyse_log_parts(lines, Span(2 * SECOND), windows_of)
    parts = list(
        analyse_log_parts(
            lines, Span(2 * SECOND, memory=room(measure_log_density(lines).events * 3 // 4)), windows_of
        )
    )
    assert len(parts) > 2
    found = [summary for part in parts for summary in part]
    assert [one.start_us for one in found] == [one.start_us for one in whole]
    for one, expected in zip(found, whole, strict=True):
        same(one, expected)


def test_a_span_of_a_log_is_analysed_without_the_rest_of_it():
    lines = build_timelines(read_log(many_jobs(12).lines))
    density = measure_log_density(lines)
    middle = density.start_us + (density.end_us - density.start_us) // 2
    span = Span(2 * SECOND, middle, middle + 4 * SECOND, memory=room(density.events // 2))
    (found,) = analyse_log_parts(lines, span, windows_of)
    expected = list(
        summarise_graph(build_graph(lines.build_trace(), 0), 2 * SECOND, middle, middle + 4 * SECOND)
    )
    for one, other in zip(found, expected, strict=True):
        same(one, other)


@settings(max_examples=200, deadline=None)
@given(event_lists(), st.integers(1, 20))
def test_what_is_carried_over_gives_later_windows_as_the_whole_does(events, start):
    trace = trace_of(events)
    assume(start < max(trace.time_us, default=0))
    graph = build_graph(trace, 0)
    kept = build_graph(trace.take(find_needed_events(trace, graph, start)), 0)
    expected = list(summarise_graph(graph, 4, start))
    for one, other in zip(summarise_graph(kept, 4, start), expected, strict=True):
        if other.length_us:
            same(one, other)


def test_an_activity_that_goes_on_is_closed_at_the_last_instant():
    trace = trace_of(ordered(activity("p", 0, 50), activity("q", 0, 3), message("p", 4, "q", 5, 1))).rows(
        0, 5
    )
    ended = close_activities(trace)
    assert len(ended) == len(trace) + 1
    assert (ended.workers[ended.worker[-1]], ended.kind[-1], ended.time_us[-1]) == ("p", Kind.END, 5)


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory):
    """Five batches of rows, in ten seconds."""
    path = tmp_path_factory.mktemp("traces") / "long.parquet"
    write_trace(generate_trace(TraceShape(300_000, workers=6)), path)
    return path


def test_a_trace_in_parts_has_the_windows_of_the_whole(long_trace):
    (whole,) = analyse_trace_parts(long_trace, Span(2 * SECOND), windows_of)
    parts = list(analyse_trace_parts(long_trace, Span(2 * SECOND, memory=room(260_000)), windows_of))
    assert len(parts) == 5
    for one, expected in zip([one for part in parts for one in part], whole, strict=True):
        same(one, expected)


def test_a_late_span_of_a_trace_knows_what_went_on_before_it(long_trace):
    span = Span(None, 5 * SECOND, 7 * SECOND, memory=room(150_000))
    (found,) = analyse_trace_parts(long_trace, span, windows_of)
    (whole,) = analyse_trace_parts(long_trace, Span(None, 5 * SECOND, 7 * SECOND), windows_of)
    same(found[0], whole[0])


def test_the_whole_is_the_mean_of_its_parts_and_says_so(long_trace):
    found = diagnose_trace(long_trace, Span(SECOND // 2, memory=room(80_000)))
    exact = diagnose_trace(long_trace, Span(SECOND // 2))
    assert sum(found.whole.activity.values()) == pytest.approx(1)
    assert found.whole.activity == pytest.approx(exact.whole.activity, abs=0.05)
    assert found.whole.profile.activity == pytest.approx(exact.whole.profile.activity)
    assert found.whole.profile.work == pytest.approx(exact.whole.profile.work)
    assert found.whole.events == exact.whole.events
    assert sum(found.single_path.values()) == pytest.approx(1)
    assert found.warnings[-1].startswith("the time was analysed in")
    assert found.warnings[:-1] == exact.warnings
    assert found.to_json()["whole"]["paths_log10"] is None
    with pytest.raises(BadInput, match="--from and --to"):
        build_perfetto_trace([found])


def test_rows_out_of_order_need_the_whole_trace(tmp_path):
    trace = generate_trace(TraceShape(150_000))
    path = tmp_path / "shuffled.parquet"
    write_trace(trace.take(np.arange(len(trace))[::-1]), path)
    assert diagnose_trace(path, Span()).whole.events == len(trace)
    with pytest.raises(BadInput, match="not in order of time"):
        diagnose_trace(path, Span(SECOND // 10, memory=room(60_000)))


@pytest.mark.parametrize("times", [["soon", "later"], [None, 5], [1.5, 2.5]])
def test_times_that_are_no_numbers_are_named_before_anything_is_cut(tmp_path, times):
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table({"time_us": times}), path)
    with pytest.raises(BadInput, match="the trace column time_us must hold whole numbers"):
        diagnose_trace(path, Span(SECOND, memory=room(1)))


def test_times_of_any_clock_are_counted_and_told():
    far = np.array([-(2**62), 0, 2**62], dtype=np.int64)
    density = measure_density([(far, None)], -(2**62), 2**62)
    assert density.count_between(-(2**62), 2**62) == density.events == 3
    with pytest.raises(BadInput, match=r"events are from -4\.61169e\+12 s to 4\.61169e\+12 s"):
        Span(start_us=5, end_us=5).clip(-(2**62), 2**62)


def test_a_diagnosis_in_parts_names_the_same_causes():
    log = read_log(many_jobs(12).lines)
    exact = diagnose_log(log, Span(2 * SECOND))
    events = measure_log_density(build_timelines(log)).events
    found = diagnose_log(log, Span(2 * SECOND, memory=room(events * 3 // 4)))
    assert [one.cause for one in found.findings][:2] == [one.cause for one in exact.findings][:2]
    assert found.whole.work == pytest.approx(exact.whole.work, abs=0.05)


def test_memory_is_what_the_machine_and_the_container_leave(tmp_path):
    of_machine = find_free_memory(tmp_path)
    assert 1_000_000 < of_machine <= psutil.virtual_memory().total
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    assert find_free_memory(tmp_path) == 600_000
    (tmp_path / "memory.max").write_text("max\n")
    assert find_free_memory(tmp_path) > 1_000_000
