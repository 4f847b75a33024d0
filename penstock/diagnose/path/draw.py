"""Draw one critical path at random, every one as likely as any other, for comparison (section 3.7.4)."""

from __future__ import annotations

import numba
import numpy as np

from penstock.diagnose.path.counts import (
    Counts,
    Links,
    PathTotal,
    PathWindow,
    count_forward,
    find_leaving_event,
    leads_on,
    total_paths,
)
from penstock.diagnose.path.graph import ActivityGraph
from penstock.diagnose.path.participation import allocate_counts, to_links
from penstock.diagnose.path.shares import enter_edge, share_paths
from penstock.diagnose.trace.events import Activity, Codes, Floats, Indices

_WAITING = int(Activity.WAITING)
# How a path goes on from its last event: not at all, or over the end of the window.
_ENDS, _BY_WORKER, _BY_MESSAGE = range(3)


def draw_path(graph: ActivityGraph, window: PathWindow, seed: int = 0) -> tuple[dict[str, float], Indices]:
    """Return the activities' shares of one critical path, and its events in the window, last first."""
    links, forward, random = to_links(graph), allocate_counts(window), np.random.default_rng(seed)
    total = PathTotal(*total_paths(links, window, forward, count_forward(links, window, forward)))
    if total.length <= 0:
        return {}, np.empty(0, dtype=np.int32)
    end = _draw_end(links, window, forward, total, random.random())
    spent = np.zeros(len(Activity))
    events = _walk_back(links, window, forward, end, random, graph.trace.activity, spent)
    shares = spent / total.length
    return {kind.label: float(shares[kind]) for kind in Activity if shares[kind] > 0}, events


@numba.njit(cache=True)
def _draw_end(
    links: Links, window: PathWindow, forward: Counts, total: PathTotal, chance: float
) -> tuple[int, int]:
    """Return the last event before the window's end of a path, and how the path goes on from there.

    The ends are those of `total_paths`; a path over one edge that spans the window has an event before it.
    """
    inverse, whole = 1.0 / total.mantissa, window.end_us - window.start_us == total.length
    alone = share_paths(1.0, 0, 1.0, 0, inverse, total.exponent) if whole else 0.0
    last, goes_on = -1, _ENDS
    for i in window.spanning:
        if chance >= 0.0 and alone > 0.0:
            last, goes_on, chance = i, _BY_MESSAGE, chance - alone
    for w in range(len(window.last_inside)):
        i = find_leaving_event(links, window, w)
        if chance >= 0.0 and i >= 0:
            s, m, k, _ = enter_edge(links, window, forward, i)
            if window.end_us - s == total.length:
                last, goes_on = i, _BY_WORKER
                chance -= share_paths(m, k, 1.0, 0, inverse, total.exponent)
    for i in range(window.low, window.high):
        if chance < 0.0:
            break
        s, m, k, at = enter_edge(links, window, forward, i)
        crosses = links.target[i] >= window.high
        reached = window.end_us if crosses else at
        if (crosses or not leads_on(links, i)) and reached - s == total.length:
            last, goes_on = i, _BY_MESSAGE if crosses else _ENDS
            chance -= share_paths(m, k, 1.0, 0, inverse, total.exponent)
    return last, goes_on


@numba.njit(cache=True)
def _walk_back(
    links: Links, window: PathWindow, forward: Counts, end: tuple[int, int],
    random: np.random.Generator, activity: Codes, spent: Floats,
) -> Indices:  # fmt: skip
    """Walk back from the end over edges drawn with the probability of the paths over each."""
    events = np.empty(window.high - window.low, dtype=np.int32)
    size, (i, goes_on) = 0, end
    if goes_on != _ENDS:
        kind = activity[i] if goes_on == _BY_MESSAGE else links.edge_activity[links.following[i]]
        spent[kind] += window.end_us - max(links.time[i], window.start_us)
    while i >= window.low:
        events[size] = i
        size += 1
        by_worker, by_message = _weigh_edges(links, window, forward, i)
        if by_worker + by_message == 0.0:
            break
        takes_message = random.random() * (by_worker + by_message) >= by_worker
        kind = activity[i] if takes_message else links.edge_activity[i]
        tail = links.source[i] if takes_message else links.previous[i]
        spent[kind] += links.time[i] - max(links.time[tail], window.start_us)
        i = tail
    return events[:size].copy()


@numba.njit(cache=True)
def _weigh_edges(links: Links, window: PathWindow, forward: Counts, head: int) -> tuple[float, float]:
    """Return which share of the paths to an event comes over its worker's edge, and which over a message."""
    h, p, j = head - window.low, links.previous[head], links.source[head]
    by_worker, by_message, inverse = 0.0, 0.0, 1.0 / forward.mantissa[h]
    if p >= 0 and links.edge_activity[head] != _WAITING:
        s, m, k, _ = enter_edge(links, window, forward, p)
        if s == forward.origin[h]:
            by_worker = share_paths(m, k, 1.0, 0, inverse, forward.exponent[h])
    # a message that arrives on the border lies before the window
    if j >= window.low or (j >= 0 and links.time[head] > window.start_us):
        s, m, k, _ = enter_edge(links, window, forward, j)
        if s == forward.origin[h]:
            by_message = share_paths(m, k, 1.0, 0, inverse, forward.exponent[h])
    return by_worker, by_message
