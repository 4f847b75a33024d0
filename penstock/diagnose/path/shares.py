"""Compiled passes of Algorithm 2: path counts backward, and the share of each edge (equation 3.3)."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from penstock.diagnose.path.counts import (
    BASE,
    INVERSE_BASE,
    NEVER,
    Counts,
    Links,
    PathTotal,
    PathWindow,
    find_leaving_event,
    join_counts,
)
from penstock.diagnose.trace.events import Activity, Floats, Indices, Times

_WAITING = int(Activity.WAITING)
# Tails come in no order that a processor foresees, but are near: to read this far ahead halves the time.
_READ_AHEAD = 512


@numba.njit(cache=True, inline="always")
def share_paths(m1: float, k1: int, m2: float, k2: int, inverse: float, k: int) -> float:
    """Return c1 · c2 / N of Algorithm 2, where `inverse` is 1 over the mantissa of N and `k` its exponent.

    Mantissas lie from 1 to 2^256, so a product of two reaches 2^512: only from an exponent of -3 on is
    nothing left. No edge has more than N paths, but a count rounded up to the next power may seem to.
    """
    exponent = k1 + k2 - k
    share = (m1 * inverse) * (m2 * INVERSE_BASE)
    if exponent == -1:
        return share
    if exponent == 0:
        return share * BASE
    if exponent == -2:
        return share * INVERSE_BASE
    return share * BASE * BASE if exponent == 1 else 0.0


@numba.njit(cache=True)
def _enter(
    time: Times, origin: Times, mantissa: Floats, exponent: Indices, low: int, start: int, tail: int
) -> tuple[int, float, int, int]:
    """Do the work of `enter_edge` on single arrays: in a long loop, tuples of them cost much more."""
    if tail < low:
        return start, 1.0, 0, start
    t = np.uint32(tail - low)
    return origin[t], mantissa[t], exponent[t], time[np.uint32(tail)]


@numba.njit(cache=True)
def _leave(
    origin: Times, mantissa: Floats, exponent: Indices, low: int, high: int, end: int, head: int
) -> tuple[int, float, int]:
    """Return minus the end of the paths over the edge to `head`, and their number."""
    if head >= high:
        return -end, 1.0, 0
    h = np.uint32(head - low)
    return origin[h], mantissa[h], exponent[h]


@numba.njit(cache=True)
def enter_edge(links: Links, window: PathWindow, forward: Counts, tail: int) -> tuple[int, float, int, int]:
    """Return origin and count of the paths over the edge from `tail`, and when it begins in the window."""
    return _enter(
        links.time, forward.origin, forward.mantissa, forward.exponent, window.low, window.start_us, tail
    )


class _Scale(NamedTuple):
    """A total for the passes over edges: its length, 1 over its length and mantissa, and its exponent."""

    length: int
    unit: float
    inverse: float
    exponent: int


@numba.njit(cache=True)
def _make_scale(total: PathTotal) -> _Scale:
    unit, inverse = (1.0 / total.length, 1.0 / total.mantissa) if total.length > 0 else (0.0, 0.0)
    return _Scale(total.length, unit, inverse, total.exponent)


@numba.njit(cache=True)
def _share_edge(
    entered: tuple[int, float, int, int], at: int, e: int, m: float, k: int, scale: _Scale
) -> float:
    """Apply equation 3.3 to an edge that is entered so, to an event at `at` with these backward counts."""
    s, m1, k1, begins = entered
    # a critical path through this event has its whole length between its origin and its end
    if -e - s != scale.length:
        return 0.0
    return share_paths(m1, k1, m, k, scale.inverse, scale.exponent) * (at - begins) * scale.unit


@numba.njit(cache=True)
def share_edges(
    links: Links, window: PathWindow, counts: Counts, total: PathTotal, local: Floats, message: Floats
) -> tuple[int, int, float]:
    """Count paths backward, and apply equation 3.3 to the edges into each event on the way.

    Backward counts, with minus the end of paths as origin, replace forward ones. Return how many events have
    no cause and in how many spans all wait (section 3.3.4), and a sum of what was read ahead: else it is not.
    """
    time, previous, following, source, target, edge_activity = links
    origin, mantissa, exponent = counts
    low, high, start, end = window.low, window.high, window.start_us, window.end_us
    scale, ahead, first = _make_scale(total), 0.0, np.uint64(low)
    covered, uncaused, holes = find_cover(links, window), 0, 0
    for event in range(high - 1, low - 1, -1):
        i, h, early = np.uint64(event), np.uint64(event - low), np.uint64(max(event - _READ_AHEAD, low))
        ahead += origin[early - first] + mantissa[early - first] + exponent[early - first] + time[early]
        q, r, p, j, at = following[i], target[i], previous[i], source[i], time[i]
        e, m, k, by_worker, by_message = NEVER, 0.0, 0, 0.0, 0.0
        if q >= 0 and edge_activity[np.uint32(q)] != _WAITING:
            e, m, k = _leave(origin, mantissa, exponent, low, high, end, q)
        if r >= 0:
            e2, m2, k2 = _leave(origin, mantissa, exponent, low, high, end, r)
            e, m, k = join_counts(e, m, k, e2, m2, k2)
        if m == 0.0:
            e, m = -at, 1.0
        holes += event < covered and at < _find_time(time, covered, high, end)
        covered = min(covered, event)
        if p >= 0 and edge_activity[i] != _WAITING:
            covered = min(covered, p)
            entered = _enter(time, origin, mantissa, exponent, low, start, p)
            by_worker = _share_edge(entered, at, e, m, k, scale)
        if j >= 0:
            covered = min(covered, j)
            entered = _enter(time, origin, mantissa, exponent, low, start, j)
            by_message = _share_edge(entered, at, e, m, k, scale)
        uncaused += (p < 0) & (j < 0) & (at > start)
        local[h], message[h] = by_worker, by_message
        origin[h], mantissa[h], exponent[h] = e, m, k
    holes += covered >= low and _find_time(time, covered, high, end) > start
    return uncaused, holes, ahead


@numba.njit(cache=True)
def share_leaving(links: Links, window: PathWindow, counts: Counts, total: PathTotal) -> Floats:
    """Apply equation 3.3 to each message that leaves the window, with forward counts."""
    shares = np.zeros(len(window.leaving), dtype=np.float64)
    for place, i in enumerate(window.leaving):
        s, m, k, begins = enter_edge(links, window, counts, i)
        if window.end_us - s == total.length and total.length > 0:
            share = share_paths(m, k, 1.0, 0, 1.0 / total.mantissa, total.exponent)
            shares[place] = share * (window.end_us - begins) / total.length
    return shares


@numba.njit(cache=True)
def share_at_end(links: Links, window: PathWindow, counts: Counts, total: PathTotal) -> Floats:
    """Apply equation 3.3 to each worker's edge across the end of the window."""
    crossing = np.zeros(len(window.last_inside), dtype=np.float64)
    for w in range(len(crossing)):
        p = find_leaving_event(links, window, w)
        s, m, k, begins = enter_edge(links, window, counts, p)
        if p >= 0 and window.end_us - s == total.length and total.length > 0:
            share = share_paths(m, k, 1.0, 0, 1.0 / total.mantissa, total.exponent)
            crossing[w] = share * (window.end_us - begins) / total.length
    return crossing


@numba.njit(cache=True)
def find_cover(links: Links, window: PathWindow) -> int:
    """Return the first event from which an edge covers the window's end; its `high` if there is none."""
    covered = window.high if len(window.spanning) == 0 else window.low - 1
    for w in range(len(window.last_inside)):
        p = find_leaving_event(links, window, w)
        if p >= 0:
            covered = min(covered, p)
    for i in window.leaving:
        covered = min(covered, i)
    return covered


@numba.njit(cache=True)
def _find_time(time: Times, event: int, high: int, end: int) -> int:
    return int(time[event]) if event < high else end
