"""Generated traces: of the shape that was asked for, and sound."""

from __future__ import annotations

import io

import numpy as np
import pytest

from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.path.participation import cut_windows, measure_participation
from penstock.diagnose.trace.events import Kind
from penstock.diagnose.trace.from_log import build_timelines
from penstock_lab.experiments.diagnosis_speed import TraceShape, generate_trace, shuffle_events, write_log


@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_a_trace_has_the_events_workers_and_messages_asked_for(share):
    trace = generate_trace(TraceShape(30_000, workers=8, message_share=share))
    assert len(trace) == pytest.approx(30_000, rel=0.02)
    messages = np.isin(trace.kind, (Kind.SEND, Kind.RECEIVE)).mean()
    assert messages == pytest.approx(share, abs=0.02)
    assert (trace.time_us[-1] - trace.time_us[0]) / 1e6 == pytest.approx(1.0, rel=0.05)


def test_a_trace_needs_no_repair_and_its_shares_sum_to_one():
    graph = build_graph(generate_trace(TraceShape(20_000, workers=6)))
    repairs = graph.repairs
    assert (repairs.overlapping_activities, repairs.ends_without_start) == (0, 0)
    assert (repairs.receives_without_send, repairs.sends_without_receive) == (0, 0)
    (window,) = cut_windows(graph)
    found = measure_participation(graph, window)
    assert found.local.sum() + found.message.sum() == pytest.approx(1)


def test_shuffled_a_trace_is_in_no_order_and_still_the_same_trace():
    trace = generate_trace(TraceShape(20_000, workers=6))
    found = shuffle_events(trace)
    assert 0.4 < (np.diff(found.time_us) >= 0).mean() < 0.6
    assert all(np.diff(found.in_time_order().time_us) >= 0)
    assert measure_total(found) == measure_total(trace)


def measure_total(trace):
    graph = build_graph(trace)
    found = measure_participation(graph, next(cut_windows(graph)))
    return found.paths_log10, found.length_us


def test_the_log_of_the_benchmark_is_a_sound_log():
    stream = io.BytesIO()
    write_log(stream, 1000)
    log = read_log(stream.getvalue().split(b"\n"))
    found = build_timelines(log)
    assert len(log.tasks) == 1000
    assert found.warnings == {}
    assert build_graph(found.build_trace(), 0).repairs.overlapping_activities == 0
