"""Compiled passes of Algorithm 2: path counts forward and backward over events in time order.

A count is mantissa · 2^(256 · exponent), because counts exceed 10^300 in a trace of ordinary size. Each
vertex also keeps the earliest instant from which it can be reached (backward: the latest that it reaches), so
that the longest path is exact, in microseconds, even where no path spans the window.

Waiting is on no path: an edge of that type ends the paths that lead to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from penstock.diagnose.trace.events import Activity, Codes, Floats, Indices, Times

_WAITING = int(Activity.WAITING)
_BASE = 2.0**256
_INVERSE_BASE = 2.0**-256
_NEVER = 2**62


class Links(NamedTuple):
    """The edges of an `ActivityGraph`."""

    time: Times
    previous: Indices
    following: Indices
    source: Indices
    target: Indices
    edge_activity: Codes


class PathWindow(NamedTuple):
    """A snapshot of events `low` up to `high`, with each worker's last event before its start and its end.

    `spanning` are the sends of messages that are under way during all of it.
    """

    start_us: int
    end_us: int
    low: int
    high: int
    last_before: Indices
    last_inside: Indices
    spanning: Indices


class Counts(NamedTuple):
    """For each event of the window the origin of its longest paths, their number, and if any goes on."""

    origin: Times
    mantissa: Floats
    exponent: Times
    goes_on: Codes


class PathTotal(NamedTuple):
    """The length and the number of a window's critical paths."""

    length: int
    mantissa: float
    exponent: int


@numba.njit(cache=True)
def advance_workers(worker: Indices, target: Indices, at: int, to: int, last: Indices) -> Indices:
    """Move each worker's last event up to `to`; return the sends on the way that are received after it."""
    under_way = np.zeros(len(last), dtype=np.int32)
    held = 0
    for i in range(at, to):
        last[worker[i]] = i
        if target[i] >= to:
            if held == len(under_way):
                under_way = np.concatenate((under_way, np.zeros(held + 16, dtype=np.int32)))
            under_way[held] = i
            held += 1
    return under_way[:held].copy()


@numba.njit(cache=True, inline="always")
def _add(m1: float, k1: int, m2: float, k2: int) -> tuple[float, int]:
    if m1 == 0.0:
        return m2, k2
    if k1 == k2:
        m, k = m1 + m2, k1
    elif k1 > k2:
        m, k = (m1 + m2 * _INVERSE_BASE if k1 == k2 + 1 else m1), k1
    else:
        m, k = (m2 + m1 * _INVERSE_BASE if k2 == k1 + 1 else m2), k2
    if m >= _BASE:
        m, k = m * _INVERSE_BASE, k + 1
    return m, k


@numba.njit(cache=True, inline="always")
def _join(s1: int, m1: float, k1: int, s2: int, m2: float, k2: int) -> tuple[int, float, int]:
    """Join the paths of two edges into a vertex: keep the earlier origin, add counts if it is the same."""
    if s1 < s2:
        return s1, m1, k1
    if s2 < s1:
        return s2, m2, k2
    m, k = _add(m1, k1, m2, k2)
    return s1, m, k


@numba.njit(cache=True)
def count_forward(links: Links, window: PathWindow, counts: Counts) -> None:
    """Count, for every event of the window, the longest paths that lead to it; fills `counts`."""
    low, start = window.low, window.start_us
    origin, mantissa, exponent, goes_on = counts.origin, counts.mantissa, counts.exponent, counts.goes_on
    for i in range(low, window.high):
        s, m, k = _NEVER, 0.0, 0
        goes_on[i - low] = 0
        p = links.previous[i]
        # an event on the border is the border's vertex, even if its worker waited until then
        if 0 <= p < low and (links.edge_activity[i] != _WAITING or links.time[i] == start):
            s, m, k = start, 1.0, 0
        elif p >= low and links.edge_activity[i] != _WAITING:
            s, m, k = origin[p - low], mantissa[p - low], exponent[p - low]
            goes_on[p - low] = 1
        j = links.source[i]
        if j >= low:
            s, m, k = _join(s, m, k, origin[j - low], mantissa[j - low], exponent[j - low])
            goes_on[j - low] = 1
        elif j >= 0 and links.time[i] > start:
            s, m, k = _join(s, m, k, start, 1.0, 0)
        if m == 0.0:
            s, m = links.time[i], 1.0
        origin[i - low], mantissa[i - low], exponent[i - low] = s, m, k


@numba.njit(cache=True, inline="always")
def find_leaving_event(links: Links, window: PathWindow, worker: int) -> int:
    """Return the event from which a useful edge of this worker crosses the end of the window, or -1."""
    p = int(window.last_inside[worker])
    if p < 0 or links.following[p] < 0 or links.edge_activity[links.following[p]] == _WAITING:
        return -1
    return p


@numba.njit(cache=True)
def _measure_longest(links: Links, window: PathWindow, counts: Counts) -> int:
    low = window.low
    longest = window.end_us - window.start_us if len(window.spanning) > 0 else 0
    for w in range(len(window.last_inside)):
        p = find_leaving_event(links, window, w)
        if p >= low:
            longest = max(longest, window.end_us - counts.origin[p - low])
            counts.goes_on[p - low] = 1
        elif p >= 0:
            longest = max(longest, window.end_us - window.start_us)
    for i in range(low, window.high):
        reached = links.time[i]
        if links.target[i] >= window.high:
            reached = window.end_us
            counts.goes_on[i - low] = 1
        longest = max(longest, reached - counts.origin[i - low])
    return int(longest)


@numba.njit(cache=True)
def total_paths(links: Links, window: PathWindow, counts: Counts) -> PathTotal:
    """Return length and number N of the transient critical paths (definition 12)."""
    low = window.low
    length = _measure_longest(links, window, counts)
    m, k = (float(len(window.spanning)) if length == window.end_us - window.start_us else 0.0), 0
    for w in range(len(window.last_inside)):
        p = find_leaving_event(links, window, w)
        if p >= low and window.end_us - counts.origin[p - low] == length:
            m, k = _add(m, k, counts.mantissa[p - low], counts.exponent[p - low])
        elif 0 <= p < low and window.end_us - window.start_us == length:
            m, k = _add(m, k, 1.0, 0)
    for i in range(window.high - low):
        crosses = links.target[low + i] >= window.high
        ends = crosses and window.end_us - counts.origin[i] == length
        if ends or (not counts.goes_on[i] and links.time[low + i] - counts.origin[i] == length):
            m, k = _add(m, k, counts.mantissa[i], counts.exponent[i])
    return PathTotal(length, m, k)


@numba.njit(cache=True, inline="always")
def share_paths(m1: float, k1: int, m2: float, k2: int, inverse: float, k: int) -> float:
    """Return c1 · c2 / N of Algorithm 2, where `inverse` is 1 over the mantissa of N and `k` its exponent.

    Mantissas lie from 1 to 2^256, so a product of two reaches 2^512: only from an exponent of -3 on is
    nothing left. No edge has more than N paths, but a count rounded up to the next power may seem to.
    """
    exponent = k1 + k2 - k
    if exponent == 0:
        return (m1 * inverse) * m2
    if exponent == -1:
        return (m1 * inverse) * (m2 * _INVERSE_BASE)
    if exponent == -2:
        return ((m1 * _INVERSE_BASE) * inverse) * (m2 * _INVERSE_BASE)
    return (m1 * inverse) * (m2 * _BASE) if exponent == 1 else 0.0


@numba.njit(cache=True)
def count_backward(links: Links, window: PathWindow, counts: Counts) -> None:
    """Count, for every event of the window, the longest paths that leave it; `origin` is minus their end."""
    low, high, end = window.low, window.high, window.end_us
    origin, mantissa, exponent = counts.origin, counts.mantissa, counts.exponent
    for i in range(high - 1, low - 1, -1):
        e, m, k = _NEVER, 0.0, 0
        q, j = links.following[i], links.target[i]
        if q >= 0 and links.edge_activity[q] != _WAITING:
            e, m, k = -end, 1.0, 0
            if q < high:
                e, m, k = origin[q - low], mantissa[q - low], exponent[q - low]
        if j >= high:
            e, m, k = _join(e, m, k, -end, 1.0, 0)
        elif j >= 0:
            e, m, k = _join(e, m, k, origin[j - low], mantissa[j - low], exponent[j - low])
        if m == 0.0:
            e, m = -links.time[i], 1.0
        origin[i - low], mantissa[i - low], exponent[i - low] = e, m, k


@numba.njit(cache=True, inline="always")
def enter_edge(links: Links, window: PathWindow, forward: Counts, tail: int) -> tuple[int, float, int, int]:
    """Return origin and count of the paths over the edge from `tail`, and when it begins in the window."""
    if tail < window.low:
        return window.start_us, 1.0, 0, window.start_us
    t = tail - window.low
    return forward.origin[t], forward.mantissa[t], forward.exponent[t], links.time[tail]


@numba.njit(cache=True)
def share_edges(
    links: Links, window: PathWindow, forward: Counts, backward: Counts, total: PathTotal,
    local: Floats, message: Floats,
) -> None:  # fmt: skip
    """Apply equation 3.3 to the edges at each event; fills `local` and `message`, see `Participation`."""
    low, length = window.low, total.length
    local[:] = 0.0
    message[:] = 0.0
    if length <= 0:
        return
    inverse, unit = 1.0 / total.mantissa, 1.0 / length
    for i in range(window.high - low):
        p, j, at = links.previous[low + i], links.source[low + i], links.time[low + i]
        # a critical path through this event comes from this origin
        origin = -backward.origin[i] - length
        if p >= 0 and links.edge_activity[low + i] != _WAITING:
            s, m, k, begins = enter_edge(links, window, forward, p)
            if s == origin:
                share = share_paths(m, k, backward.mantissa[i], backward.exponent[i], inverse, total.exponent)
                local[i] = share * (at - begins) * unit
        s, m, k, begins = enter_edge(links, window, forward, j)
        if j >= 0 and s == origin:
            share = share_paths(m, k, backward.mantissa[i], backward.exponent[i], inverse, total.exponent)
            message[i] = share * (at - begins) * unit
        elif links.target[low + i] >= window.high and window.end_us - forward.origin[i] == length:
            share = share_paths(forward.mantissa[i], forward.exponent[i], 1.0, 0, inverse, total.exponent)
            message[i] = share * (window.end_us - at) * unit


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
def count_uncovered(links: Links, window: PathWindow) -> tuple[int, int]:
    """Check section 3.3.4: count events without a cause, and spans in which all wait."""
    uncaused, holes = 0, 0
    reach = window.end_us if len(window.spanning) == 0 else window.start_us
    for w in range(len(window.last_inside)):
        p = find_leaving_event(links, window, w)
        if p >= 0:
            reach = min(reach, max(window.start_us, links.time[p]))
    for i in range(window.low, window.high):
        if links.target[i] >= window.high:
            reach = min(reach, links.time[i])
    for i in range(window.high - 1, window.low - 1, -1):
        at = links.time[i]
        if at < reach:
            holes, reach = holes + 1, at
        p, j = links.previous[i], links.source[i]
        uncaused += p < 0 and j < 0 and at > window.start_us
        if p >= 0 and links.edge_activity[i] != _WAITING:
            reach = min(reach, max(window.start_us, links.time[p]))
        if j >= 0:
            reach = min(reach, max(window.start_us, links.time[j]))
    return uncaused, holes + (reach > window.start_us)
