"""Compiled passes of Algorithm 2: path counts forward and backward over events in time order.

A count is mantissa · 2^(256 · exponent), because counts exceed 10^300 in a trace of ordinary size. Each
vertex also keeps the earliest instant from which it can be reached (backward: the latest that it reaches), so
that the longest path is exact, in microseconds, even where no path spans the window.

Waiting is on no path: an edge of that type ends the paths that lead to it.

Indices in long loops are unsigned, because numba checks others for their sign at every use.
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
_READ_AHEAD = 512


class Links(NamedTuple):
    """The edges of an `ActivityGraph`."""

    time: Times
    previous: Indices
    following: Indices
    source: Indices
    target: Indices
    edge_activity: Codes


class PathWindow(NamedTuple):
    """A snapshot of events `low` up to `high`, with each worker's last event before its end.

    `leaving` are its sends of messages that are received after it, `spanning` the sends of messages that are
    under way during all of it.
    """

    start_us: int
    end_us: int
    low: int
    high: int
    last_inside: Indices
    leaving: Indices
    spanning: Indices


class Counts(NamedTuple):
    """For each event of the window the origin of its longest paths, and their number."""

    origin: Times
    mantissa: Floats
    exponent: Indices


class PathTotal(NamedTuple):
    """The length and the number of a window's critical paths."""

    length: int
    mantissa: float
    exponent: int


@numba.njit(cache=True)
def move_last(worker: Indices, at: int, to: int, last: Indices) -> None:
    """Move each worker's last event from before `at` to before `to`, searching backward."""
    is_found = np.zeros(len(last), dtype=np.bool_)
    missing = len(last)
    for i in range(to - 1, at - 1, -1):
        w = worker[i]
        if not is_found[w]:
            last[w], is_found[w] = i, True
            missing -= 1
            if missing == 0:
                return


@numba.njit(cache=True)
def find_under_way(target: Indices, at: int, to: int) -> Indices:
    """Return the sends between two events that are received after them."""
    number, sends = 0, target[at:to]
    for i in range(len(sends)):
        number += sends[i] >= to
    found, i = np.empty(number, dtype=np.int32), to
    # most are near the end: what is received late was mostly sent late
    while number > 0:
        i -= 1
        if target[i] >= to:
            number -= 1
            found[number] = i
    return found


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
def count_forward(links: Links, window: PathWindow, counts: Counts) -> int:
    """Count, for every event of the window, the longest paths that lead to it; fills `counts`.

    Return the length of the longest path to any event.
    """
    time, previous, _, source, _, edge_activity = links
    origin, mantissa, exponent = counts
    low, start, longest = window.low, window.start_us, 0
    for i in range(np.uint64(low), np.uint64(window.high)):
        s, m, k, at = _NEVER, 0.0, 0, time[i]
        p, j, is_useful = previous[i], source[i], edge_activity[i] != _WAITING
        if p >= low:
            t = np.uint32(p - low)
            if is_useful:
                s, m, k = origin[t], mantissa[t], exponent[t]
        # an event on the border is the border's vertex, even if its worker waited until then
        elif p >= 0 and (is_useful or at == start):
            s, m, k = start, 1.0, 0
        if j >= low:
            t = np.uint32(j - low)
            s, m, k = _join(s, m, k, origin[t], mantissa[t], exponent[t])
        elif j >= 0 and at > start:
            s, m, k = _join(s, m, k, start, 1.0, 0)
        if m == 0.0:
            s, m = at, 1.0
        h = i - np.uint64(low)
        origin[h], mantissa[h], exponent[h] = s, m, k
        longest = max(longest, at - s)
    return longest


@numba.njit(cache=True, inline="always")
def leads_on(links: Links, event: int) -> bool:
    """Return whether a useful edge leads on from an event."""
    q = links.following[event]
    return bool(links.target[event] >= 0 or (q >= 0 and links.edge_activity[q] != _WAITING))


@numba.njit(cache=True, inline="always")
def find_leaving_event(links: Links, window: PathWindow, worker: int) -> int:
    """Return the event from which a useful edge of this worker crosses the end of the window, or -1."""
    p = int(window.last_inside[worker])
    if p < 0 or links.following[p] < 0 or links.edge_activity[links.following[p]] == _WAITING:
        return -1
    return p


@numba.njit(cache=True)
def _lengthen(links: Links, window: PathWindow, counts: Counts, longest: int) -> int:
    """Return the length of the longest path, those over the window's end included."""
    low = window.low
    if len(window.spanning) > 0:
        longest = window.end_us - window.start_us
    for w in range(len(window.last_inside)):
        p = find_leaving_event(links, window, w)
        if p >= low:
            longest = max(longest, window.end_us - counts.origin[p - low])
        elif p >= 0:
            longest = window.end_us - window.start_us
    for i in window.leaving:
        longest = max(longest, window.end_us - counts.origin[i - low])
    return longest


@numba.njit(cache=True)
def total_paths(links: Links, window: PathWindow, counts: Counts, longest: int) -> PathTotal:
    """Return length and number N of the transient critical paths (definition 12).

    `longest` is what `count_forward` returned.
    """
    low = window.low
    length = _lengthen(links, window, counts, longest)
    m, k = (float(len(window.spanning)) if length == window.end_us - window.start_us else 0.0), 0
    for w in range(len(window.last_inside)):
        p = find_leaving_event(links, window, w)
        if p >= low and window.end_us - counts.origin[p - low] == length:
            m, k = _add(m, k, counts.mantissa[p - low], counts.exponent[p - low])
        elif 0 <= p < low and window.end_us - window.start_us == length:
            m, k = _add(m, k, 1.0, 0)
    for i in window.leaving:
        if window.end_us - counts.origin[i - low] == length:
            m, k = _add(m, k, counts.mantissa[i - low], counts.exponent[i - low])
    i = window.high - 1
    # no path begins before the window: those that end early are too short
    while i >= low and links.time[i] - window.start_us >= length:
        if links.time[i] - counts.origin[i - low] == length and not leads_on(links, i):
            m, k = _add(m, k, counts.mantissa[i - low], counts.exponent[i - low])
        i -= 1
    return PathTotal(length, m, k)


@numba.njit(cache=True, inline="always")
def share_paths(m1: float, k1: int, m2: float, k2: int, inverse: float, k: int) -> float:
    """Return c1 · c2 / N of Algorithm 2, where `inverse` is 1 over the mantissa of N and `k` its exponent.

    Mantissas lie from 1 to 2^256, so a product of two reaches 2^512: only from an exponent of -3 on is
    nothing left. No edge has more than N paths, but a count rounded up to the next power may seem to.
    """
    exponent = k1 + k2 - k
    share = (m1 * inverse) * (m2 * _INVERSE_BASE)
    if exponent == -1:
        return share
    if exponent == 0:
        return share * _BASE
    if exponent == -2:
        return share * _INVERSE_BASE
    return share * _BASE * _BASE if exponent == 1 else 0.0


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

    Backward counts, with minus the end of paths as origin, replace the forward ones of an event, which serve
    edges to later events only. Check section 3.3.4 too: return the numbers of events without a cause and of
    spans in which all wait, and a number without meaning, so that what is read ahead is read.
    """
    time, previous, following, source, target, edge_activity = links
    origin, mantissa, exponent = counts
    low, high, start, end = window.low, window.high, window.start_us, window.end_us
    unit, inverse = (1.0 / total.length, 1.0 / total.mantissa) if total.length > 0 else (0.0, 0.0)
    scale, ahead, first = _Scale(total.length, unit, inverse, total.exponent), 0.0, np.uint64(low)
    covered, uncaused, holes = find_cover(links, window), 0, 0
    for event in range(high - 1, low - 1, -1):
        i, h, early = np.uint64(event), np.uint64(event - low), np.uint64(max(event - _READ_AHEAD, low))
        # tails come in no order that a processor foresees, but are near: to read ahead halves the time
        ahead += origin[early - first] + mantissa[early - first] + exponent[early - first] + time[early]
        q, r, p, j, at = following[i], target[i], previous[i], source[i], time[i]
        e, m, k, by_worker, by_message = _NEVER, 0.0, 0, 0.0, 0.0
        if q >= 0 and edge_activity[np.uint32(q)] != _WAITING:
            e, m, k = _leave(origin, mantissa, exponent, low, high, end, q)
        if r >= 0:
            e2, m2, k2 = _leave(origin, mantissa, exponent, low, high, end, r)
            e, m, k = _join(e, m, k, e2, m2, k2)
        if m == 0.0:
            e, m = -at, 1.0
        if event < covered:
            holes += at < _find_time(time, covered, high, end)
            covered = event
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
    if covered >= low:
        holes += _find_time(time, covered, high, end) > start
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
