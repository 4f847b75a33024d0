"""Critical participation of every edge in a window of the activity graph (Algorithm 2, equations 3.1-3.5)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.diagnose.path.counts import (
    Counts,
    Links,
    PathTotal,
    PathWindow,
    count_forward,
    find_under_way,
    move_last,
    total_paths,
)
from penstock.diagnose.path.graph import ActivityGraph
from penstock.diagnose.path.shares import share_at_end, share_edges, share_leaving
from penstock.diagnose.trace.events import Floats
from penstock.diagnose.trace.memory import allocate_columns


@dataclass(frozen=True, slots=True)
class Instrumentation:
    """Violations of the two properties of section 3.3.4, counted in one window."""

    uncaused_events: int
    silent_spans: int


@dataclass(frozen=True, slots=True)
class Participation:
    """Critical participation of the edges of one window.

    `local` is of the worker edge into each event; `message` of the message that each event received, or sent
    to be received after the window; `crossing` of each worker's edge across the end of the window; `spanning`
    of each message in `window.spanning`.
    """

    window: PathWindow
    length_us: int
    paths_log10: float
    local: Floats
    message: Floats
    crossing: Floats
    spanning: Floats
    instrumentation: Instrumentation


def to_links(graph: ActivityGraph) -> Links:
    """Return the graph's edges for the compiled passes."""
    return Links(
        graph.trace.time_us, graph.previous, graph.following, graph.source, graph.target, graph.edge_activity
    )


def cut_windows(
    graph: ActivityGraph, length_us: int | None = None, start_us: int | None = None, end_us: int | None = None
) -> Iterator[PathWindow]:
    """Cut the graph into snapshots of `length_us` (definition 11), or take all of it as one."""
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
        yield state.make_window(start, end, low, high)


class _Rolling:
    """A place in the graph, with each worker's last event and the messages under way."""

    def __init__(self, graph: ActivityGraph) -> None:
        self._graph = graph
        self._at = 0
        self._last = np.full(len(graph.trace.workers), -1, dtype=np.int32)
        self._sent = np.empty(0, dtype=np.int32)

    def make_window(self, start: int, end: int, low: int, high: int) -> PathWindow:
        self._advance(low)
        under_way = self._sent
        self._advance(high)
        spanning = under_way[self._graph.target[under_way] >= high]
        leaving = self._sent[len(spanning) :]
        return PathWindow(start, end, low, high, self._last.copy(), leaving, spanning)

    def _advance(self, to: int) -> None:
        graph = self._graph
        move_last(graph.trace.worker, self._at, to, self._last)
        sends = find_under_way(graph.target, self._at, to)
        self._sent = np.concatenate([self._sent[graph.target[self._sent] >= to], sends])
        self._at = to


def measure_participation(graph: ActivityGraph, window: PathWindow) -> Participation:
    """Return the critical participation of every edge in the window; all of them sum to 1 (equation 3.5)."""
    links, counts = to_links(graph), allocate_counts(window)
    total = PathTotal(*total_paths(links, window, counts, count_forward(links, window, counts)))
    crossing, sent = (share(links, window, counts, total) for share in (share_at_end, share_leaving))
    local, message = allocate_columns(window.high - window.low, np.float64, np.float64)
    uncaused, holes, _ = share_edges(links, window, counts, total, local, message)
    message[window.leaving - window.low] = sent
    return Participation(
        window=window,
        length_us=int(total.length),
        paths_log10=_to_log10(total),
        local=local,
        message=message,
        crossing=crossing,
        spanning=_share_spanning(window, total),
        instrumentation=Instrumentation(int(uncaused), int(holes)),
    )


def allocate_counts(window: PathWindow) -> Counts:
    """Return empty arrays for the path counts of a window."""
    return Counts._make(allocate_columns(window.high - window.low, np.int64, np.float64, np.int32))


def _to_log10(total: PathTotal) -> float:
    if total.length <= 0 or total.mantissa <= 0:
        return -math.inf
    return math.log10(total.mantissa) + total.exponent * 256 * math.log10(2)


def _share_spanning(window: PathWindow, total: PathTotal) -> Floats:
    whole = total.length > 0 and total.length == window.end_us - window.start_us
    # beside a number of paths that exceeds a float, these single paths have no measurable share
    share = 1.0 / total.mantissa if whole and total.exponent == 0 else 0.0
    return np.full(len(window.spanning), share)
