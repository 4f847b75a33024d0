"""Single-path analysis for comparison: one transient critical path, drawn at random (section 3.7.4)."""

from __future__ import annotations

import numba
import numpy as np

from penstock.diagnose.activity_graph import ActivityGraph
from penstock.diagnose.participation import Window, counts_for, links_of, span_of
from penstock.diagnose.participation_kernel import Counts, Links, Span, Total, count_forward, total_paths
from penstock.diagnose.trace import Activity, Codes, Floats, Indices

_WAITING = int(Activity.WAITING)


def single_path(graph: ActivityGraph, window: Window, seed: int = 0) -> tuple[dict[str, float], Indices]:
    """Shares of the activities on one path, all being as likely, and the events it passes, last first."""
    links, span = links_of(graph), span_of(window)
    forward = counts_for(window)
    count_forward(links, span, forward)
    total = Total(*total_paths(links, span, forward))
    end = _ends(links, span, forward, total, np.random.default_rng(seed).random())
    shares = np.zeros(len(Activity))
    if total.length <= 0 or end < 0:
        return {}, np.empty(0, dtype=np.int32)
    events = _walk(links, span, forward, end, seed, graph.trace.activity, shares)
    shares /= max(shares.sum(), 1e-300)
    return {kind.label: float(shares[kind]) for kind in Activity if shares[kind] > 0}, events


@numba.njit(cache=True)
def _ends(links: Links, span: Span, forward: Counts, total: Total, chance: float) -> int:
    """The last event of a path: each is as likely as the number of critical paths that end behind it."""
    held = 0.0
    last = -1
    for i in range(span.low, span.high):
        q = links.following[i]
        leaves = q >= span.high and links.edge_activity[q] != _WAITING
        crosses = links.target[i] >= span.high
        reached = span.end if leaves or crosses else links.time[i]
        final = leaves or crosses or not forward.goes_on[i - span.low]
        if final and reached - forward.origin[i - span.low] == total.length:
            exponent = forward.exponent[i - span.low] - total.exponent
            if exponent == 0:
                held += (leaves + crosses + (not leaves and not crosses)) * (
                    forward.mantissa[i - span.low] / total.mantissa
                )
            last = i
            if held >= chance:
                return last
    return last


@numba.njit(cache=True)
def _walk(
    links: Links, span: Span, forward: Counts, end: int, seed: int, activity: Codes, shares: Floats
) -> Indices:
    """Goes back from the end, taking each edge with the probability of the paths that come over it."""
    np.random.seed(seed)
    events = np.empty(span.high - span.low, dtype=np.int32)
    origin = forward.origin[end - span.low]
    size, i = 0, end
    q = links.following[i]
    if q >= span.high and links.edge_activity[q] != _WAITING:
        shares[links.edge_activity[q]] += span.end - links.time[i]
    elif links.target[i] >= span.high:
        shares[activity[i]] += span.end - links.time[i]
    while i >= span.low:
        events[size] = i
        size += 1
        p, j = links.previous[i], links.source[i]
        by_worker = _weight(links, span, forward, p, i, origin, False)
        by_message = _weight(links, span, forward, j, i, origin, True)
        if by_worker + by_message == 0.0:
            break
        takes_message = np.random.random() * (by_worker + by_message) >= by_worker
        kind = activity[i] if takes_message else links.edge_activity[i]
        tail = j if takes_message else p
        shares[kind] += links.time[i] - max(links.time[tail], span.start)
        i = tail
    return events[:size].copy()


@numba.njit(cache=True)
def _weight(
    links: Links, span: Span, forward: Counts, tail: int, head: int, origin: int, is_message: bool
) -> float:
    """Paths over one edge into `head`, as a share of all that lead there."""
    if tail < 0 or (not is_message and links.edge_activity[head] == _WAITING):
        return 0.0
    m, k, s = 1.0, 0, span.start
    if tail >= span.low:
        t = tail - span.low
        m, k, s = forward.mantissa[t], forward.exponent[t], forward.origin[t]
    if s != origin or forward.exponent[head - span.low] - k > 1:
        return 0.0
    scale = 1.0 if forward.exponent[head - span.low] == k else 2.0**-256
    return float(m * scale)
