"""Compiled pass that links time-ordered events into an activity graph (Algorithm 1, Table 3.2)."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from penstock.diagnose.trace import Activity, Codes, Indices, Kind, Times

_START, _END, _SEND, _RECEIVE = int(Kind.START), int(Kind.END), int(Kind.SEND), int(Kind.RECEIVE)
_WAITING, _UNKNOWN = int(Activity.WAITING), int(Activity.UNKNOWN)
# Places in the array of repairs that `connect` fills.
OVERLAPPING, ORPHAN_ENDS, LOST_RECEIVES, LOST_SENDS, FILLED_GAPS = range(5)


class Timelines(NamedTuple):
    """What `link_timelines` fills in, a value for each event."""

    previous: Indices
    following: Indices
    edge_activity: Codes
    edge_work: Indices


@numba.njit(cache=True, inline="always")
def _slot(correlation: int, sender: int, receiver: int, mask: int) -> int:
    key = np.uint64(correlation) * np.uint64(0x9E3779B97F4A7C15)
    key ^= (np.uint64(sender) << np.uint64(32)) ^ np.uint64(receiver)
    key *= np.uint64(0xD6E8FEB86659FD93)
    return int(key >> np.uint64(32)) & mask


@numba.njit(cache=True)
def _grown(table: Indices, correlation: Times, worker: Indices, remote: Indices) -> Indices:
    """A table of twice the size with the same messages in flight."""
    larger = np.full(len(table) * 2, -1, dtype=np.int32)
    mask = len(larger) - 1
    for send in table:
        if send >= 0:
            place = _slot(correlation[send], worker[send], remote[send], mask)
            while larger[place] >= 0:
                place = (place + 1) & mask
            larger[place] = send
    return larger


@numba.njit(cache=True)
def _remove(table: Indices, place: int, correlation: Times, worker: Indices, remote: Indices) -> None:
    """Empties a place of the table and closes the hole that this leaves in the probe sequence."""
    mask = len(table) - 1
    hole, probe = place, (place + 1) & mask
    while table[probe] >= 0:
        send = table[probe]
        home = _slot(correlation[send], worker[send], remote[send], mask)
        if ((probe - home) & mask) >= ((probe - hole) & mask):
            table[hole] = send
            hole = probe
        probe = (probe + 1) & mask
    table[hole] = -1


@numba.njit(cache=True)
def match_messages(
    worker: Indices, kind: Codes, correlation: Times, remote: Indices,
    source: Indices, target: Indices, repairs: Times,
) -> None:  # fmt: skip
    """Fills in for a receive its send, for a send its receive; -1 where there is none."""
    count = len(worker)
    table = np.full(1024, -1, dtype=np.int32)
    held = 0
    for i in range(count):
        source[i] = target[i] = -1
        if kind[i] == _SEND:
            if held * 2 >= len(table):
                table = _grown(table, correlation, worker, remote)
            mask = len(table) - 1
            place = _slot(correlation[i], worker[i], remote[i], mask)
            while table[place] >= 0:
                place = (place + 1) & mask
            table[place] = i
            held += 1
        elif kind[i] == _RECEIVE:
            mask = len(table) - 1
            place = _slot(correlation[i], remote[i], worker[i], mask)
            while table[place] >= 0:
                send = table[place]
                if (
                    correlation[send] == correlation[i]
                    and worker[send] == remote[i]
                    and remote[send] == worker[i]
                ):
                    source[i], target[send] = send, i
                    _remove(table, place, correlation, worker, remote)
                    held -= 1
                    break
                place = (place + 1) & mask
            if source[i] < 0:
                repairs[LOST_RECEIVES] += 1
    repairs[LOST_SENDS] += held


@numba.njit(cache=True, inline="always")
def _gap(before: int, after: int, short: bool) -> int:
    """Table 3.2: 0 extends the activity before, 1 the one after; otherwise the gap is waiting or unknown."""
    if short and before == _END:
        return 0
    if short and after == _START:
        return 1
    if after == _RECEIVE and before != _RECEIVE:
        return _WAITING + 2
    return _UNKNOWN + 2


@numba.njit(cache=True)
def link_timelines(
    time: Times, worker: Indices, kind: Codes, activity: Codes, work: Indices,
    links: Timelines, threshold: int, repairs: Times,
) -> None:  # fmt: skip
    """Fills in each event's neighbours on its timeline, and type and work of the edge into it."""
    workers = int(worker.max()) + 1 if len(worker) else 0
    previous, following = links.previous, links.following
    edge_activity, edge_work = links.edge_activity, links.edge_work
    last = np.full(workers, -1, dtype=np.int32)
    is_open = np.zeros(workers, dtype=np.bool_)
    doing, doing_work = np.zeros(workers, dtype=np.uint8), np.zeros(workers, dtype=np.int32)
    for i in range(len(time)):
        w, event = worker[i], kind[i]
        previous[i] = following[i] = -1
        before = last[w]
        edge, edge_for = _UNKNOWN, work[i]
        if is_open[w]:
            edge, edge_for = doing[w], doing_work[w]
            repairs[OVERLAPPING] += event == _START
        elif event == _END:
            edge = activity[i]
            repairs[ORPHAN_ENDS] += before >= 0
        elif before >= 0 and time[i] > time[before]:
            rule = _gap(kind[before], event, time[i] - time[before] < threshold)
            edge = rule - 2
            if rule == 0:
                edge, edge_for = doing[w], doing_work[w]
            elif rule == 1:
                edge = activity[i]
            repairs[FILLED_GAPS] += edge == _UNKNOWN
        if before >= 0:
            previous[i], following[before] = before, i
            # An instant is one vertex: nobody waits for zero time, so it must not cut a path.
            if edge == _WAITING and time[i] == time[before]:
                edge = _UNKNOWN
        edge_activity[i], edge_work[i] = edge, edge_for
        if event <= _END:
            is_open[w] = event == _START
            doing[w], doing_work[w] = activity[i], work[i]
        last[w] = i
