"""Small traces written by hand, and a plain reference of Algorithms 1 and 2 that lists every path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from graphlib import TopologicalSorter

import numpy as np
import pytest
from hypothesis import strategies as st

from penstock.diagnose.trace.events import Activity, Kind, Trace, Work

START, END, SEND, RECEIVE = Kind.START, Kind.END, Kind.SEND, Kind.RECEIVE


@dataclass(frozen=True)
class Event:
    time: int
    worker: str
    kind: Kind
    activity: Activity = Activity.PROCESSING
    remote: str | None = None
    correlation: int = 0
    operator: str = ""


def activity(worker, start, end, kind=Activity.PROCESSING, operator=""):
    return [
        Event(start, worker, START, kind, operator=operator),
        Event(end, worker, END, kind, operator=operator),
    ]


def message(sender, sent, receiver, received, correlation, kind=Activity.DATA_MESSAGE):
    return [
        Event(sent, sender, SEND, kind, receiver, correlation),
        Event(received, receiver, RECEIVE, kind, sender, correlation),
    ]


def ordered(*groups: Iterable[Event]) -> list[Event]:
    return sorted((event for group in groups for event in group), key=lambda event: event.time)


def trace_of(events: Sequence[Event], scale: int = 1) -> Trace:
    workers = list(dict.fromkeys([e.worker for e in events] + [e.remote for e in events if e.remote]))
    works = list(dict.fromkeys(Work(e.operator) for e in events)) or [Work()]
    return Trace(
        time_us=np.array([e.time * scale for e in events], dtype=np.int64),
        worker=np.array([workers.index(e.worker) for e in events], dtype=np.int32),
        kind=np.array([e.kind for e in events], dtype=np.uint8),
        activity=np.array([e.activity for e in events], dtype=np.uint8),
        correlation=np.array([e.correlation for e in events], dtype=np.int64),
        remote=np.array([workers.index(e.remote) if e.remote else -1 for e in events], dtype=np.int32),
        work=np.array([works.index(Work(e.operator)) for e in events], dtype=np.int32),
        workers=tuple(workers),
        works=tuple(works),
    )


@dataclass(frozen=True)
class Edge:
    tail: object
    head: object
    begins: int
    ends: int
    activity: Activity
    event: int  # the event whose arrival makes the edge
    is_message: bool


def plain_edges(events: Sequence[Event], threshold: int) -> list[Edge]:
    """Algorithm 1 and Table 3.2, said slowly."""
    edges = []
    for worker in dict.fromkeys(event.worker for event in events):
        places = [i for i, event in enumerate(events) if event.worker == worker]
        doing = None
        last_type = None
        for before, after in zip([None, *places], places, strict=False):
            event = events[after]
            if before is not None:
                kind = _edge_type(events[before], event, doing, last_type, threshold)
                same = events[before].time == event.time
                kind = Activity.UNKNOWN if same and kind == Activity.WAITING else kind
                edges.append(Edge(before, after, events[before].time, event.time, kind, after, False))
            if event.kind == START:
                doing = last_type = event.activity
            elif event.kind == END:
                doing, last_type = None, event.activity
    return edges + _plain_messages(events)


def _edge_type(before, after, doing, last_type, threshold):
    if doing is not None:
        return doing
    if after.kind == END:
        return after.activity
    short = after.time - before.time < threshold
    if short and before.kind == END:
        return last_type
    if short and after.kind == START:
        return after.activity
    if after.kind == RECEIVE and before.kind != RECEIVE:
        return Activity.WAITING
    return Activity.UNKNOWN


def _plain_messages(events):
    edges, sent = [], {}
    for place, event in enumerate(events):
        if event.kind == SEND:
            sent[event.worker, event.remote, event.correlation] = place
        elif event.kind == RECEIVE:
            source = sent.pop((event.remote, event.worker, event.correlation), None)
            if source is not None:
                edges.append(
                    Edge(source, place, events[source].time, event.time, event.activity, place, True)
                )
    return edges


def project(edges, events, start, end, low, high):
    """Definition 10 on every edge; a vertex outside becomes its worker's vertex on the boundary."""
    kept = []
    for edge in edges:
        if edge.head < low or edge.tail >= high:
            continue
        if edge.is_message and edge.tail < low and edge.ends == start:
            continue
        tail = edge.tail if edge.tail >= low else ("start", events[edge.tail].worker)
        head = edge.head if edge.head < high else ("end", events[edge.head].worker)
        begins, ends = max(edge.begins, start), min(edge.ends, end)
        on_border = edge.tail < low and edge.ends == start and not edge.is_message
        kind = Activity.UNKNOWN if on_border else edge.activity
        kept.append(Edge(tail, head, begins, ends, kind, edge.event, edge.is_message))
    return kept


def critical_paths(edges):
    """Every path of greatest weight that waits nowhere (definition 12)."""
    useful = [edge for edge in edges if edge.activity != Activity.WAITING]
    leaving: dict[object, list[Edge]] = {}
    for edge in useful:
        leaving.setdefault(edge.tail, []).append(edge)
    entered = {edge.head for edge in useful}
    paths = []

    def walk(vertex, path):
        if vertex not in leaving:
            paths.append(path)
            return
        for edge in leaving[vertex]:
            walk(edge.head, [*path, edge])

    for vertex in dict.fromkeys(edge.tail for edge in useful):
        if vertex not in entered:
            walk(vertex, [])
    weights = [sum(edge.ends - edge.begins for edge in path) for path in paths]
    longest = max(weights, default=0)
    return [path for path, weight in zip(paths, weights, strict=True) if weight == longest], longest


def plain_participation(edges):
    """Equation 3.2: the mean over all critical paths, as exact fractions."""
    paths, longest = critical_paths(edges)
    shares: dict[Edge, Fraction] = {}
    if longest == 0:
        return shares, len(paths), longest
    for path in paths:
        for edge in path:
            share = Fraction(edge.ends - edge.begins, longest * len(paths))
            shares[edge] = shares.get(edge, Fraction(0)) + share
    return shares, len(paths), longest


@dataclass(frozen=True)
class ExactPaths:
    """The critical paths of a window, counted with integers of any size."""

    number: int
    length: int
    over: dict[Edge, int]  # how many of them pass each edge


def count_exactly(edges: Sequence[Edge]) -> ExactPaths:
    """Count the paths of greatest weight (definition 12) without listing them."""
    useful = [edge for edge in edges if edge.activity != Activity.WAITING]
    into, out = _count_to(useful, "tail", "head"), _count_to(useful, "head", "tail")
    last = set(into) - {edge.tail for edge in useful}
    longest = max((into[vertex][0] for vertex in last), default=0)
    number = sum(count for vertex in last for length, count in [into[vertex]] if length == longest)
    over = {}
    for edge in useful:
        (before, come), (after, go) = into[edge.tail], out[edge.head]
        over[edge] = come * go if before + edge.ends - edge.begins + after == longest else 0
    return ExactPaths(number, longest, over)


def _count_to(edges, tail, head):
    """Return for every vertex the weight and the number of the heaviest paths that lead to it."""
    entering: dict[object, list[Edge]] = {}
    for edge in edges:
        entering.setdefault(getattr(edge, tail), [])
        entering.setdefault(getattr(edge, head), []).append(edge)
    order = TopologicalSorter({v: [getattr(e, tail) for e in found] for v, found in entering.items()})
    best: dict[object, tuple[int, int]] = {}
    for vertex in order.static_order():
        found = [(best[getattr(e, tail)], e.ends - e.begins) for e in entering[vertex]]
        longest = max((length + more for (length, _), more in found), default=0)
        ways = sum(count for (length, count), more in found if length + more == longest)
        best[vertex] = (longest, ways if found else 1)
    return best


def exact_shares(edges: Sequence[Edge]) -> tuple[dict[Edge, Fraction], ExactPaths]:
    """Return equation 3.2 from exact counts, for windows with too many paths to list."""
    paths = count_exactly(edges)
    whole = paths.length * paths.number
    shares = {
        edge: Fraction(ways * (edge.ends - edge.begins), whole) for edge, ways in paths.over.items() if whole
    }
    return shares, paths


def figure_3_3():
    """Three workers over [0, 10]; all nine paths pass (u, v) of W2; (a, b) and (c, d) end in waiting."""
    return ordered(
        activity("W1", 0, 1),
        activity("W3", 0, 2),
        activity("W2", 0, 2),
        message("W1", 1, "W2", 2, 1),
        activity("W2", 2, 3, operator="x-u"),
        message("W3", 2, "W2", 3, 2),
        activity("W1", 1, 4, operator="a-b"),
        activity("W3", 2, 5, operator="c-d"),
        activity("W2", 3, 6, operator="u-v"),
        activity("W2", 6, 7, operator="v-z"),
        message("W2", 6, "W1", 7, 3),
        message("W2", 7, "W3", 8, 4),
        activity("W1", 7, 10),
        activity("W2", 7, 10),
        activity("W3", 8, 10),
    )


WORKERS = ("p", "q", "r")


TYPES = (Activity.PROCESSING, Activity.WAITING, Activity.SERIALIZATION)


@st.composite
def event_lists(draw):
    groups = []
    for worker in WORKERS[: draw(st.integers(1, 3))]:
        times = sorted(draw(st.lists(st.integers(0, 24), min_size=0, max_size=8)))
        for start, end in zip(times[::2], times[1::2], strict=False):
            groups.append(activity(worker, start, end, draw(st.sampled_from(TYPES))))
    for number in range(draw(st.integers(0, 6))):
        sender, receiver = draw(st.permutations(WORKERS))[:2]
        sent = draw(st.integers(0, 23))
        groups.append(message(sender, sent, receiver, sent + draw(st.integers(0, 8)), number))
    return ordered(*groups)


def ladder(rungs):
    """Two workers that exchange a message each step: the paths double at every rung."""
    groups = []
    for step in range(rungs):
        at = 4 * step
        groups.append(message("p", at, "q", at + 3, 2 * step))
        groups.append(message("q", at, "p", at + 3, 2 * step + 1))
    busy = [activity("p", 0, 4 * rungs), activity("q", 0, 4 * rungs)]
    return ordered(*busy, *groups)


def ladders(rungs, times):
    """Ladders joined by rungs of 50,000, and at last an edge that every path passes."""
    lengths = ([4] * rungs + [50_000]) * times + [4] * rungs
    groups, at = [], 0
    for step, length in enumerate(lengths):
        groups.append(message("p", at, "q", at + length - 1, 2 * step))
        groups.append(message("q", at, "p", at + length - 1, 2 * step + 1))
        at += length
    busy = [activity("p", 0, at + 100), activity("q", 0, at)]
    return ordered(*busy, *groups, message("q", at, "p", at + 1, 2 * len(lengths)))


def same(found, expected):
    assert found.length_us == expected.length_us
    assert found.paths_log10 == pytest.approx(expected.paths_log10)
    for name in ("activity", "worker", "operator"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-9)
    channels = [{(a, b): share for a, b, share in item.communication} for item in (found, expected)]
    assert channels[0] == pytest.approx(channels[1])
