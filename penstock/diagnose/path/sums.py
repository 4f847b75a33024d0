"""Compiled sums over the edges of one window: participation, busy time, and who ran what, in one pass."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from penstock.diagnose.path.counts import PathWindow
from penstock.diagnose.path.graph import ActivityGraph, Edges
from penstock.diagnose.path.participation import Participation
from penstock.diagnose.trace.events import EVENT_COLUMNS, Activity, Floats, Kind, Times
from penstock.diagnose.trace.memory import allocate_columns
from penstock.diagnose.trace.merge import Columns

_Code: TypeAlias = int | np.integer[Any]
_WAITING, _UNKNOWN, _SEND = int(Activity.WAITING), int(Activity.UNKNOWN), int(Kind.SEND)


class Sums(NamedTuple):
    """Participation and busy microseconds by activity, worker and work, and which worker ran which operator.

    Messages count in `activity` only.
    """

    activity: Floats
    worker: Floats
    work: Floats
    busy_activity: Times
    busy_worker: Times
    busy_work: Times
    ran: npt.NDArray[np.bool_]


class Channels(NamedTuple):
    """The messages that are on a critical path: sender · workers + receiver, and participation."""

    key: Times
    share: Floats


def sum_window(
    graph: ActivityGraph, found: Participation, operator: Times, operators: int
) -> tuple[Sums, Channels]:
    """Sum over the edges of a window; `operator` has the number of the operator of each work."""
    trace, window = graph.trace, found.window
    columns = Columns._make(getattr(trace, name) for name in EVENT_COLUMNS)
    edges = Edges(
        graph.previous, graph.following, graph.source, graph.target, graph.edge_activity, graph.edge_work
    )
    sizes = (len(Activity), len(trace.workers), len(trace.works))
    ran = np.zeros((operators, len(trace.workers)), dtype=np.bool_)
    sums = Sums._make(
        [*(np.zeros(size) for size in sizes), *(np.zeros(size, dtype=np.int64) for size in sizes), ran]
    )
    # room for the message of each event, and for those that are under way during all of the window
    channels = Channels._make(
        allocate_columns(window.high - window.low + len(window.spanning), np.int64, np.float64)
    )
    _sum_inside(columns, edges, window, found.local, operator, sums)
    _sum_crossing(columns, edges, window, found.crossing, operator, sums)
    number = _sum_messages(columns, window, found.message, found.spanning, sums, channels)
    return sums, Channels(channels.key[:number], channels.share[:number])


@numba.njit(cache=True, inline="always")
def _add_edge(kind: _Code, worker: _Code, work: _Code, spent: int, operator: Times, sums: Sums) -> None:
    """Add the time of an edge."""
    sums.busy_activity[kind] += spent
    if kind != _WAITING:
        sums.busy_worker[worker] += spent
        sums.busy_work[work] += spent
        if spent > 0 and kind != _UNKNOWN:
            sums.ran[operator[work], worker] = True


@numba.njit(cache=True)
def _sum_inside(
    columns: Columns, edges: Edges, window: PathWindow, local: Floats, operator: Times, sums: Sums
) -> None:
    """Add the worker edges into the events of a window."""
    time, start, low = columns.time, window.start_us, np.uint64(window.low)
    by_activity, by_worker, by_work = sums.activity, sums.worker, sums.work
    for i in range(low, np.uint64(window.high)):
        p, share = edges.previous[i], local[i - low]
        w, kind, work = np.uint32(columns.worker[i]), edges.activity[i], np.uint32(edges.work[i])
        by_activity[kind] += share
        by_worker[w] += share
        by_work[work] += share
        if p >= 0:
            spent = time[i] - max(time[np.uint32(p)], start)
            _add_edge(kind, w, work, spent, operator, sums)


@numba.njit(cache=True)
def _sum_crossing(
    columns: Columns, edges: Edges, window: PathWindow, crossing: Floats, operator: Times, sums: Sums
) -> None:
    """Add each worker's edge across the end of a window."""
    for w in range(len(window.last_inside)):
        last = window.last_inside[w]
        head = edges.following[last] if last >= 0 else -1
        if head >= 0:
            kind, work = edges.activity[head], edges.work[head]
            sums.activity[kind] += crossing[w]
            sums.worker[w] += crossing[w]
            sums.work[work] += crossing[w]
            spent = window.end_us - max(columns.time[last], window.start_us)
            _add_edge(kind, w, work, max(spent, 0), operator, sums)


@numba.njit(cache=True)
def _sum_messages(
    columns: Columns, window: PathWindow, message: Floats, spanning: Floats, sums: Sums, channels: Channels
) -> int:
    """Add the messages of a window to the activities, and list those on a critical path; return how many."""
    number, workers = 0, len(sums.worker)
    for place in range(len(message) + len(spanning)):
        inside = place < len(message)
        share = message[place] if inside else spanning[place - len(message)]
        if share > 0:
            i = window.low + place if inside else window.spanning[place - len(message)]
            own, other = np.int64(columns.worker[i]), np.int64(columns.remote[i])
            sender, receiver = (own, other) if columns.kind[i] == _SEND else (other, own)
            channels.key[number], channels.share[number] = sender * workers + receiver, share
            sums.activity[columns.activity[i]] += share
            number += 1
    return number
