"""Every rule of Table 3.2, and the repairs that are counted."""

from __future__ import annotations

import pytest

from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.trace.events import Activity
from tests.diagnose.traces import Event, Kind, activity, message, ordered, trace_of

THRESHOLD = 10
BEFORE, AFTER = Activity.BUFFER, Activity.SERIALIZATION


def gap_type(before, after, gap):
    """The type that a gap of this length gets between an event of kind `before` and one of kind `after`."""
    at = 100
    events = activity("w", 90, at, BEFORE) if before == "end" else half(before, at, 1)
    end = at + gap
    events += activity("w", end, end + 50, AFTER) if after == "start" else half(after, end, 2)
    trace = trace_of(sorted(events, key=lambda event: event.time))
    graph = build_graph(trace, gap_threshold_us=THRESHOLD)
    worker = trace.workers.index("w")
    place = next(i for i in range(len(trace)) if trace.time_us[i] == end and trace.worker[i] == worker)
    return Activity(graph.edge_activity[place])


def half(kind, at, correlation):
    if kind == "send":
        return message("w", at, "other", at + 200, correlation)
    return message("other", at - 50, "w", at, correlation)


@pytest.mark.parametrize(
    ("before", "after", "long_gap", "short_gap"),
    [
        ("end", "start", Activity.UNKNOWN, BEFORE),
        ("end", "send", Activity.UNKNOWN, BEFORE),
        ("end", "receive", Activity.WAITING, BEFORE),
        ("send", "start", Activity.UNKNOWN, AFTER),
        ("receive", "start", Activity.UNKNOWN, AFTER),
        ("send", "receive", Activity.WAITING, Activity.WAITING),
        ("send", "send", Activity.UNKNOWN, Activity.UNKNOWN),
        ("receive", "send", Activity.UNKNOWN, Activity.UNKNOWN),
        ("receive", "receive", Activity.UNKNOWN, Activity.UNKNOWN),
    ],
)
def test_gap_rules(before, after, long_gap, short_gap):
    assert gap_type(before, after, THRESHOLD) == long_gap
    assert gap_type(before, after, THRESHOLD - 1) == short_gap


def test_a_message_inside_an_activity_splits_it_and_keeps_its_type():
    events = ordered(activity("w", 0, 10, AFTER), message("w", 4, "v", 6, 1))
    graph = build_graph(trace_of(events))
    types = [Activity(graph.edge_activity[i]) for i, e in enumerate(events) if e.worker == "w" and e.time]
    assert types == [AFTER, AFTER]


def test_repairs_are_counted():
    events = [
        Event(0, "w", Kind.START),
        Event(1, "w", Kind.START),
        Event(2, "w", Kind.END),
        Event(3, "w", Kind.END),
        Event(4, "w", Kind.RECEIVE, Activity.DATA_MESSAGE, "v", 1),
        Event(5, "w", Kind.SEND, Activity.DATA_MESSAGE, "v", 2),
    ]
    repairs = build_graph(trace_of(events)).repairs
    assert repairs.overlapping_activities == 1
    assert repairs.ends_without_start == 1
    assert repairs.receives_without_send == 1
    assert repairs.sends_without_receive == 1


def test_many_messages_in_flight_find_their_partner():
    count = 5000
    sends = [message("p", i, "q", 100_000 - i, i) for i in range(count)]
    graph = build_graph(trace_of(ordered(*sends)))
    receives = [i for i in range(2 * count) if graph.source[i] >= 0]
    assert len(receives) == count
    assert all(graph.trace.correlation[i] == graph.trace.correlation[graph.source[i]] for i in receives)
    assert all(graph.target[graph.source[i]] == i for i in receives)
