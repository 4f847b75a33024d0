"""Build the activity graph of a trace: timelines joined by messages, every gap explained (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from penstock.diagnose.trace.events import Activity, Codes, Indices, Kind, Times, Trace
from penstock.errors import BadInput

_START, _END, _SEND, _RECEIVE = int(Kind.START), int(Kind.END), int(Kind.SEND), int(Kind.RECEIVE)
_WAITING, _UNKNOWN = int(Activity.WAITING), int(Activity.UNKNOWN)
# Places in the array of repairs that the compiled passes fill, in the order of `Repairs`.
OVERLAPPING, ORPHAN_ENDS, LOST_RECEIVES, LOST_SENDS = range(4)
# The threshold h of section 3.4.
GAP_THRESHOLD_US = 100_000


class Timelines(NamedTuple):
    """The arrays that `link_timelines` fills, with a value for each event."""

    previous: Indices
    following: Indices
    edge_activity: Codes
    edge_work: Indices


@numba.njit(cache=True, inline="always")
def _hash_message(correlation: int, sender: int, receiver: int, mask: int) -> int:
    key = np.uint64(correlation) * np.uint64(0x9E3779B97F4A7C15)
    key ^= (np.uint64(sender) << np.uint64(32)) ^ np.uint64(receiver)
    key *= np.uint64(0xD6E8FEB86659FD93)
    return int(key >> np.uint64(32)) & mask


@numba.njit(cache=True)
def _grow_table(table: Indices, correlation: Times, worker: Indices, remote: Indices) -> Indices:
    """Return a table of twice the size with the same messages in flight."""
    larger = np.full(len(table) * 2, -1, dtype=np.int32)
    mask = len(larger) - 1
    for send in table:
        if send >= 0:
            place = _hash_message(correlation[send], worker[send], remote[send], mask)
            while larger[place] >= 0:
                place = (place + 1) & mask
            larger[place] = send
    return larger


@numba.njit(cache=True)
def _remove_send(table: Indices, place: int, correlation: Times, worker: Indices, remote: Indices) -> None:
    """Remove a send from the table and close the hole in its probe sequence."""
    mask = len(table) - 1
    hole, probe = place, (place + 1) & mask
    while table[probe] >= 0:
        send = table[probe]
        home = _hash_message(correlation[send], worker[send], remote[send], mask)
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
    """Fill in the send of every receive and the receive of every send; -1 where there is none."""
    count = len(worker)
    table = np.full(1024, -1, dtype=np.int32)
    held = 0
    for i in range(count):
        source[i] = target[i] = -1
        if kind[i] == _SEND:
            if held * 2 >= len(table):
                table = _grow_table(table, correlation, worker, remote)
            mask = len(table) - 1
            place = _hash_message(correlation[i], worker[i], remote[i], mask)
            while table[place] >= 0:
                place = (place + 1) & mask
            table[place] = i
            held += 1
        elif kind[i] == _RECEIVE:
            mask = len(table) - 1
            place = _hash_message(correlation[i], remote[i], worker[i], mask)
            while table[place] >= 0:
                send = table[place]
                if (
                    correlation[send] == correlation[i]
                    and worker[send] == remote[i]
                    and remote[send] == worker[i]
                ):
                    source[i], target[send] = send, i
                    _remove_send(table, place, correlation, worker, remote)
                    held -= 1
                    break
                place = (place + 1) & mask
            if source[i] < 0:
                repairs[LOST_RECEIVES] += 1
    repairs[LOST_SENDS] += held


@numba.njit(cache=True, inline="always")
def _explain_gap(before: int, after: int, short: bool) -> int:
    """Apply table 3.2: 0 extends the activity before, 1 the one after; else waiting or unknown, plus 2."""
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
    """Fill in each event's neighbours on its timeline, and the type and work of the edge into it."""
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
            rule = _explain_gap(kind[before], event, time[i] - time[before] < threshold)
            edge = rule - 2
            if rule == 0:
                edge, edge_for = doing[w], doing_work[w]
            elif rule == 1:
                edge = activity[i]
        if before >= 0:
            previous[i], following[before] = before, i
            # events of one instant are one vertex: a wait of zero length must not cut a path
            if edge == _WAITING and time[i] == time[before]:
                edge = _UNKNOWN
        edge_activity[i], edge_work[i] = edge, edge_for
        if event <= _END:
            is_open[w] = event == _START
            doing[w], doing_work[w] = activity[i], work[i]
        last[w] = i


@dataclass(frozen=True, slots=True)
class Repairs:
    """Counts of what had to be repaired in the trace."""

    overlapping_activities: int
    ends_without_start: int
    receives_without_send: int
    sends_without_receive: int


@dataclass(frozen=True, slots=True)
class ActivityGraph:
    """A graph with a vertex for each event; edges are indices of events (-1: none).

    `previous` and `following` are the neighbours on the worker's timeline, `source` is the send of a receive,
    `target` the receive of a send; `edge_activity` and `edge_work` describe the edge from `previous`.
    """

    trace: Trace
    previous: Indices
    following: Indices
    source: Indices
    target: Indices
    edge_activity: Codes
    edge_work: Indices
    repairs: Repairs


def build_graph(trace: Trace, gap_threshold_us: int = GAP_THRESHOLD_US) -> ActivityGraph:
    """Link the events of a trace into its activity graph (Algorithm 1, with the gap rules of table 3.2)."""
    if len(trace) >= 2**31 - 1:
        raise BadInput(f"one graph holds fewer than 2^31 events, not {len(trace)}; take a shorter --window")
    trace = trace.in_time_order()
    found = np.zeros(4, dtype=np.int64)
    # numpy asks for huge pages: large arrays allocated in compiled code cost four times as much
    source, target, previous, following, work = (np.empty(len(trace), dtype=np.int32) for _ in range(5))
    activity = np.empty(len(trace), dtype=np.uint8)
    match_messages(trace.worker, trace.kind, trace.correlation, trace.remote, source, target, found)
    links = Timelines(previous, following, activity, work)
    link_timelines(
        trace.time_us, trace.worker, trace.kind, trace.activity, trace.work, links, gap_threshold_us, found
    )
    repairs = Repairs(*found.tolist())
    return ActivityGraph(trace, previous, following, source, target, activity, work, repairs)
