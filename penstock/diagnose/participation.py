"""Critical participation of every edge in a window of the activity graph (Algorithm 2, equations 3.1-3.5)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.diagnose.activity_graph import ActivityGraph
from penstock.diagnose.participation_kernel import (
    Counts,
    Links,
    Span,
    Total,
    advance,
    count_backward,
    count_forward,
    share_at_end,
    share_messages,
    share_timelines,
    total_paths,
    uncovered,
)
from penstock.diagnose.trace import Floats, Indices


@dataclass(frozen=True, slots=True)
class Window:
    """A snapshot: events `low` up to `high`, and each worker's last event before its two ends."""

    start_us: int
    end_us: int
    low: int
    high: int
    last_before: Indices
    last_inside: Indices
    spanning: Indices


@dataclass(frozen=True, slots=True)
class Instrumentation:
    """The two properties of section 3.3.4, as counted in one window."""

    uncaused_events: int
    silent_spans: int
    silent_us: int


@dataclass(frozen=True, slots=True)
class Participation:
    """Critical participation in one window.

    `local` belongs to the worker edge into each event, `message` to the message that an event received, or
    sent when it is received beyond the window; `crossing` to each worker's edge over the window's end;
    `spanning` to each message that is under way during the whole window (its send is in `window.spanning`).
    """

    window: Window
    length_us: int
    paths_log10: float
    local: Floats
    message: Floats
    crossing: Floats
    spanning: Floats
    instrumentation: Instrumentation


def links_of(graph: ActivityGraph) -> Links:
    """The graph's edges in the form of the compiled passes."""
    return Links(
        graph.trace.time_us, graph.previous, graph.following, graph.source, graph.target, graph.edge_activity
    )


def span_of(window: Window) -> Span:
    """The window in the form of the compiled passes."""
    ends = (window.low, window.high, window.start_us, window.end_us)
    return Span(*ends, window.last_before, window.last_inside, len(window.spanning))


def windows(graph: ActivityGraph, length_us: int | None = None, start_us: int | None = None,
            end_us: int | None = None) -> Iterator[Window]:  # fmt: skip
    """Cuts the graph into snapshots of `length_us` (definition 11), or takes all of it as one."""
    times = graph.trace.time_us
    if not len(times):
        return
    first = int(times[0]) if start_us is None else max(start_us, int(times[0]))
    final = int(times[-1]) if end_us is None else min(end_us, int(times[-1]))
    step = length_us or max(1, final - first)
    state = _Rolling(graph)
    for start in range(first, max(final, first + 1), step):
        end = min(start + step, final)
        is_last = end == int(times[-1])
        low = int(np.searchsorted(times, start, "left"))
        high = len(times) if is_last else int(np.searchsorted(times, end, "left"))
        yield state.window(start, end, low, high)


class _Rolling:
    """Moves along the graph and knows each worker's last event, and the messages under way."""

    def __init__(self, graph: ActivityGraph) -> None:
        self._graph = graph
        self._at = 0
        self._last = np.full(len(graph.trace.workers), -1, dtype=np.int32)
        self._sent = np.empty(0, dtype=np.int32)

    def window(self, start: int, end: int, low: int, high: int) -> Window:
        self._advance(low)
        before, under_way = self._last.copy(), self._sent
        self._advance(high)
        spanning = under_way[self._graph.target[under_way] >= high]
        return Window(start, end, low, high, before, self._last.copy(), spanning)

    def _advance(self, to: int) -> None:
        graph = self._graph
        sends = advance(graph.trace.worker, graph.target, self._at, to, self._last)
        self._sent = np.concatenate([self._sent[graph.target[self._sent] >= to], sends])
        self._at = to


def participation(graph: ActivityGraph, window: Window) -> Participation:
    """Critical participation of every edge in the window; the sum over all of them is 1 (equation 3.5)."""
    links, span = links_of(graph), span_of(window)
    forward, backward = counts_for(window), counts_for(window)
    count_forward(links, span, forward)
    count_backward(links, span, backward)
    total = Total(*total_paths(links, span, forward))
    local, message = (np.empty(window.high - window.low) for _ in range(2))
    share_timelines(links, span, forward, backward, total, local)
    share_messages(links, span, forward, backward, total, message)
    return Participation(
        window=window,
        length_us=int(total.length),
        paths_log10=_log10(total),
        local=local,
        message=message,
        crossing=share_at_end(links, span, forward, total),
        spanning=_spanning(window, total),
        instrumentation=Instrumentation(*(int(value) for value in uncovered(links, span))),
    )


def counts_for(window: Window) -> Counts:
    """Room for the path counts of a window; large arrays come from numpy, which asks for huge pages."""
    size = window.high - window.low
    origin, exponent = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    return Counts(origin, np.empty(size), exponent, np.empty(size, dtype=np.uint8))


def _log10(total: Total) -> float:
    if total.length <= 0 or total.mantissa <= 0:
        return -math.inf
    return math.log10(total.mantissa) + total.exponent * 256 * math.log10(2)


def _spanning(window: Window, total: Total) -> Floats:
    whole = total.length > 0 and total.length == window.end_us - window.start_us
    # A count beyond the range of a float leaves these single paths no measurable share.
    share = 1.0 / total.mantissa if whole and total.exponent == 0 else 0.0
    return np.full(len(window.spanning), share)
