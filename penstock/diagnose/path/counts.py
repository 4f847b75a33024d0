"""Compiled passes of Algorithm 2: path counts forward over events in time order, and their total.

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
BASE = 2.0**256
INVERSE_BASE = 2.0**-256
NEVER = 2**62


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
def add_counts(m1: float, k1: int, m2: float, k2: int) -> tuple[float, int]:
    """Return the sum of two counts as mantissa and exponent."""
    if m1 == 0.0:
        return m2, k2
    if k1 == k2:
        m, k = m1 + m2, k1
    elif k1 > k2:
        m, k = (m1 + m2 * INVERSE_BASE if k1 == k2 + 1 else m1), k1
    else:
        m, k = (m2 + m1 * INVERSE_BASE if k2 == k1 + 1 else m2), k2
    if m >= BASE:
        m, k = m * INVERSE_BASE, k + 1
    return m, k


@numba.njit(cache=True, inline="always")
def join_counts(s1: int, m1: float, k1: int, s2: int, m2: float, k2: int) -> tuple[int, float, int]:
    """Join the paths of two edges into a vertex: keep the earlier origin, add counts if it is the same."""
    if s1 < s2:
        return s1, m1, k1
    if s2 < s1:
        return s2, m2, k2
    m, k = add_counts(m1, k1, m2, k2)
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
        s, m, k, at = NEVER, 0.0, 0, time[i]
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
            s, m, k = join_counts(s, m, k, origin[t], mantissa[t], exponent[t])
        elif j >= 0 and at > start:
            s, m, k = join_counts(s, m, k, start, 1.0, 0)
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
            m, k = add_counts(m, k, counts.mantissa[p - low], counts.exponent[p - low])
        elif 0 <= p < low and window.end_us - window.start_us == length:
            m, k = add_counts(m, k, 1.0, 0)
    for i in window.leaving:
        if window.end_us - counts.origin[i - low] == length:
            m, k = add_counts(m, k, counts.mantissa[i - low], counts.exponent[i - low])
    i = window.high - 1
    # no path begins before the window: those that end early are too short
    while i >= low and links.time[i] - window.start_us >= length:
        if links.time[i] - counts.origin[i - low] == length and not leads_on(links, i):
            m, k = add_counts(m, k, counts.mantissa[i - low], counts.exponent[i - low])
        i -= 1
    return PathTotal(length, m, k)
