"""Compiled passes of Algorithm 2: path counts forward and backward over time-ordered events.

A count is kept as mantissa · 2^(256 · exponent), since counts pass 10^300 in a trace of ordinary size.
Beside its count each vertex keeps the earliest instant from which it can be reached (backward: the latest
that it reaches), so that "longest" is decided exactly, in microseconds, also where no path spans the window.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from penstock.diagnose.trace import Activity, Codes, Floats, Indices, Times

_WAITING = int(Activity.WAITING)
_BASE = 2.0**256
_INVERSE_BASE = 2.0**-256
_NEVER = 2**62


class Links(NamedTuple):
    """The edges of the graph, as `ActivityGraph` has them."""

    time: Times
    previous: Indices
    following: Indices
    source: Indices
    target: Indices
    edge_activity: Codes


class Span(NamedTuple):
    """A window: its events are `low` up to `high`; each worker's last event before, and at, its end."""

    low: int
    high: int
    start: int
    end: int
    last_before: Indices
    last_inside: Indices
    spanning: int


class Counts(NamedTuple):
    """Per event of the window: where its paths come from, how many they are, and whether any goes on."""

    origin: Times
    mantissa: Floats
    exponent: Times
    goes_on: Codes


class Total(NamedTuple):
    """The critical paths of a window: their length and how many there are."""

    length: int
    mantissa: float
    exponent: int


@numba.njit(cache=True)
def advance(worker: Indices, target: Indices, at: int, to: int, last: Indices) -> Indices:
    """Brings each worker's last event up to `to`; gives the sends on the way that are received beyond."""
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
    """Paths of two edges into one vertex: those from the earlier origin, both when it is the same."""
    if s1 < s2:
        return s1, m1, k1
    if s2 < s1:
        return s2, m2, k2
    m, k = _add(m1, k1, m2, k2)
    return s1, m, k


@numba.njit(cache=True)
def count_forward(links: Links, span: Span, counts: Counts) -> None:
    """Counts, for every event of the window, the longest paths that lead to it; fills `counts`."""
    low, start = span.low, span.start
    origin, mantissa, exponent, goes_on = counts.origin, counts.mantissa, counts.exponent, counts.goes_on
    for i in range(low, span.high):
        s, m, k = _NEVER, 0.0, 0
        goes_on[i - low] = 0
        p = links.previous[i]
        # An event on the border is the border's own vertex, even when its worker waited until then.
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
def _leaves(links: Links, span: Span, worker: int) -> int:
    """The event before the end of the window from which a useful edge of this worker crosses it; else -1."""
    p = int(span.last_inside[worker])
    if p < 0 or links.following[p] < 0 or links.edge_activity[links.following[p]] == _WAITING:
        return -1
    return p


@numba.njit(cache=True)
def _length(links: Links, span: Span, counts: Counts) -> int:
    low = span.low
    longest = span.end - span.start if span.spanning > 0 else 0
    for w in range(len(span.last_inside)):
        p = _leaves(links, span, w)
        if p >= low:
            longest = max(longest, span.end - counts.origin[p - low])
            counts.goes_on[p - low] = 1
        elif p >= 0:
            longest = max(longest, span.end - span.start)
    for i in range(low, span.high):
        reached = links.time[i]
        if links.target[i] >= span.high:
            reached = span.end
            counts.goes_on[i - low] = 1
        longest = max(longest, reached - counts.origin[i - low])
    return int(longest)


@numba.njit(cache=True)
def total_paths(links: Links, span: Span, counts: Counts) -> Total:
    """Length and number N of the transient critical paths (definition 12)."""
    low = span.low
    length = _length(links, span, counts)
    m, k = (float(span.spanning) if length == span.end - span.start else 0.0), 0
    for w in range(len(span.last_inside)):
        p = _leaves(links, span, w)
        if p >= low and span.end - counts.origin[p - low] == length:
            m, k = _add(m, k, counts.mantissa[p - low], counts.exponent[p - low])
        elif 0 <= p < low and span.end - span.start == length:
            m, k = _add(m, k, 1.0, 0)
    for i in range(span.high - low):
        crosses = links.target[low + i] >= span.high
        ends = crosses and span.end - counts.origin[i] == length
        if ends or (not counts.goes_on[i] and links.time[low + i] - counts.origin[i] == length):
            m, k = _add(m, k, counts.mantissa[i], counts.exponent[i])
    return Total(length, m, k)


@numba.njit(cache=True, inline="always")
def _share(m1: float, k1: int, m2: float, k2: int, inverse: float, k: int) -> float:
    """c1 · c2 / N of Algorithm 2; the exponent cannot be above 0, because no edge has more than N paths."""
    exponent = k1 + k2 - k
    if exponent >= 0:
        return (m1 * inverse) * m2
    return (m1 * inverse) * (m2 * _INVERSE_BASE) if exponent == -1 else 0.0


@numba.njit(cache=True)
def count_backward(links: Links, span: Span, counts: Counts) -> None:
    """Counts, for every event of the window, the longest paths that leave it; `origin` is minus their end."""
    low, high, end = span.low, span.high, span.end
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


@numba.njit(cache=True)
def share_timelines(
    links: Links, span: Span, forward: Counts, backward: Counts, total: Total, local: Floats
) -> None:
    """Equation 3.3 for the worker edge into each event."""
    low, length = span.low, total.length
    local[:] = 0.0
    if length <= 0:
        return
    inverse, unit = 1.0 / total.mantissa, 1.0 / length
    for i in range(span.high - low):
        p = links.previous[low + i]
        if p < 0 or links.edge_activity[low + i] == _WAITING:
            continue
        s, m, k, begins = span.start, 1.0, 0, span.start
        if p >= low:
            t = p - low
            s, m, k, begins = forward.origin[t], forward.mantissa[t], forward.exponent[t], links.time[p]
        if -backward.origin[i] - s == length:
            share = _share(m, k, backward.mantissa[i], backward.exponent[i], inverse, total.exponent)
            local[i] = share * (links.time[low + i] - begins) * unit


@numba.njit(cache=True)
def share_messages(
    links: Links, span: Span, forward: Counts, backward: Counts, total: Total, message: Floats
) -> None:
    """Equation 3.3 for the message that each event received, or sent to be received beyond the window."""
    # The same steps as for timelines, spelt out: in a function that both call they took ten times as long.
    low, length = span.low, total.length
    message[:] = 0.0
    if length <= 0:
        return
    inverse, unit = 1.0 / total.mantissa, 1.0 / length
    for i in range(span.high - low):
        j, at = links.source[low + i], links.time[low + i]
        s, m, k, begins = span.start, 1.0, 0, span.start
        if j >= low:
            t = j - low
            s, m, k, begins = forward.origin[t], forward.mantissa[t], forward.exponent[t], links.time[j]
        if j >= 0 and -backward.origin[i] - s == length:
            share = _share(m, k, backward.mantissa[i], backward.exponent[i], inverse, total.exponent)
            message[i] = share * (at - begins) * unit
        elif links.target[low + i] >= span.high and span.end - forward.origin[i] == length:
            share = _share(forward.mantissa[i], forward.exponent[i], 1.0, 0, inverse, total.exponent)
            message[i] = share * (span.end - at) * unit


@numba.njit(cache=True)
def share_at_end(links: Links, span: Span, counts: Counts, total: Total) -> Floats:
    """Equation 3.3 for each worker's edge that crosses the end of the window."""
    crossing = np.zeros(len(span.last_inside), dtype=np.float64)
    for w in range(len(crossing)):
        p = _leaves(links, span, w)
        s, m, k, begins = span.start, 1.0, 0, span.start
        if p >= span.low:
            t = p - span.low
            s, m, k, begins = counts.origin[t], counts.mantissa[t], counts.exponent[t], links.time[p]
        if p >= 0 and span.end - s == total.length and total.length > 0:
            share = _share(m, k, 1.0, 0, 1.0 / total.mantissa, total.exponent)
            crossing[w] = share * (span.end - begins) / total.length
    return crossing


@numba.njit(cache=True)
def uncovered(links: Links, span: Span) -> tuple[int, int, int]:
    """Section 3.3.4 checked: events that nothing caused, and holes in which all wait (number, length)."""
    uncaused, holes, length = 0, 0, 0
    reach = span.end if span.spanning == 0 else span.start
    for w in range(len(span.last_inside)):
        p = _leaves(links, span, w)
        if p >= 0:
            reach = min(reach, max(span.start, links.time[p]))
    for i in range(span.low, span.high):
        if links.target[i] >= span.high:
            reach = min(reach, links.time[i])
    for i in range(span.high - 1, span.low - 1, -1):
        at = links.time[i]
        if at < reach:
            holes, length, reach = holes + 1, length + reach - at, at
        p, j = links.previous[i], links.source[i]
        uncaused += p < 0 and j < 0 and at > span.start
        if p >= 0 and links.edge_activity[i] != _WAITING:
            reach = min(reach, max(span.start, links.time[p]))
        if j >= 0:
            reach = min(reach, max(span.start, links.time[j]))
    if reach > span.start:
        holes, length = holes + 1, length + reach - span.start
    return uncaused, holes, length
