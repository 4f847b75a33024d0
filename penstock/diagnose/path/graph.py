"""Build the activity graph of a trace: timelines joined by messages, every gap explained (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from penstock.diagnose.trace.events import EVENT_COLUMNS, Activity, Codes, Indices, Kind, Times, Trace
from penstock.diagnose.trace.memory import allocate_columns
from penstock.diagnose.trace.merge import Columns
from penstock.errors import BadInput

_START, _END, _SEND, _RECEIVE = int(Kind.START), int(Kind.END), int(Kind.SEND), int(Kind.RECEIVE)
_WAITING, _UNKNOWN = int(Activity.WAITING), int(Activity.UNKNOWN)
# Places in the array of repairs that the compiled passes fill, in the order of `Repairs`.
OVERLAPPING, ORPHAN_ENDS, LOST_RECEIVES, LOST_SENDS = range(4)
_NO_EVENT = np.uint64(2**32 - 1)
# The threshold h of section 3.4.
GAP_THRESHOLD_US = 100_000


# Events are linked and their messages matched in blocks, while what was read of them is in the cache.
_BLOCK = 1024
# What an edge is: what its worker was doing before, or is from its head on, or one of two fixed types.
_AS_BEFORE, _AS_AFTER, _AS_WAITING, _AS_UNKNOWN = range(4)
_FIXED_TYPES = np.uint32(_WAITING << 16 | _UNKNOWN << 24)
# Bits of a worker's state, beside the kind of its last event, and of a rule, beside what the edge is.
_STATE, _EDGE = np.uint32(15), np.uint32(3)
_IS_OPEN, _IS_SEEN = np.uint32(4), np.uint32(8)
_OVERLAPS, _IS_ORPHAN = np.uint32(2), np.uint32(3)


class Edges(NamedTuple):
    """The arrays that the compiled passes fill, with a value for each event."""

    previous: Indices
    following: Indices
    source: Indices
    target: Indices
    activity: Codes
    work: Indices


class _Workers(NamedTuple):
    """For each worker its last event and what work that was for, and its state and what it was doing.

    Two values share a word, the one that is named first in the lower half: that saves loads and stores.
    """

    last: npt.NDArray[np.uint64]
    state: npt.NDArray[np.uint16]


def _choose_rule(state: int, event: int, is_later: bool, short: bool) -> int:
    """Return what the edge into an event is, and the bits of what must be repaired there."""
    before, is_seen = state & 3, bool(state & int(_IS_SEEN))
    if state & int(_IS_OPEN):
        return _AS_BEFORE | (event == _START) << int(_OVERLAPS)
    if event == _END:
        return _AS_AFTER | is_seen << int(_IS_ORPHAN)
    return _explain_gap(before, event, short) if is_seen and is_later else _AS_UNKNOWN


def _explain_gap(before: int, after: int, short: bool) -> int:
    """Apply table 3.2: what the gap between events of these kinds is."""
    if short and before == _END:
        return _AS_BEFORE
    if short and after == _START:
        return _AS_AFTER
    return _AS_WAITING if after == _RECEIVE and before != _RECEIVE else _AS_UNKNOWN


# By state, kind of event, if time has passed, and if less than the threshold. A processor foresees no branch
# on the kind of an event, but looks all of them up at once.
_RULES = np.array(
    [
        _choose_rule(state, event, is_later, short)
        for state in range(16)
        for event in range(4)
        for is_later in (False, True)
        for short in (False, True)
    ],
    dtype=np.uint8,
)


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
def _match_slowly(i: int, columns: Columns, table: Indices, edges: Edges, repairs: Times) -> int:
    """Match an event whose place in the table is not the obvious one; return by how much the table grows."""
    worker, correlation, remote = columns.worker, columns.correlation, columns.remote
    mask = len(table) - 1
    if columns.kind[i] == _SEND:
        place = _hash_message(correlation[i], worker[i], remote[i], mask)
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = i
        return 1
    place = _hash_message(correlation[i], remote[i], worker[i], mask)
    while table[place] >= 0:
        send = table[place]
        if correlation[send] == correlation[i] and worker[send] == remote[i] and remote[send] == worker[i]:
            edges.source[i], edges.target[send] = send, i
            _remove_send(table, place, correlation, worker, remote)
            return -1
        place = (place + 1) & mask
    repairs[LOST_RECEIVES] += 1
    return 0


@numba.njit(cache=True)
def _match_messages(messages: Indices, columns: Columns, table: Indices, edges: Edges, repairs: Times) -> int:
    """Fill in the send of every receive and the receive of every send; return how many sends were added.

    Sends and receives come in no order that a processor foresees: both take the same way while a send finds
    its place free, and a receive finds its send there with nothing behind it.
    """
    _, worker, kind, _, correlation, remote, _ = columns
    source, target, held, mask = edges.source, edges.target, 0, len(table) - 1
    for i in messages:
        is_send, own, other = kind[i] == _SEND, worker[i], remote[i]
        sender, receiver = (own, other) if is_send else (other, own)
        place = _hash_message(correlation[i], sender, receiver, mask)
        send = table[place]
        known = max(send, 0)
        is_same = (correlation[known] == correlation[i]) & (worker[known] == sender)
        is_same &= (remote[known] == receiver) & (send >= 0) & (table[(place + 1) & mask] < 0)
        if (send < 0) if is_send else is_same:
            table[place] = i if is_send else -1
            source[i] = -1 if is_send else send
            target[i if is_send else send] = -1 if is_send else i
            held += 1 if is_send else -1
        else:
            held += _match_slowly(i, columns, table, edges, repairs)
    return held


@numba.njit(cache=True)
def _link_block(
    low: int, high: int, columns: Columns, workers: _Workers, edges: Edges,
    threshold: int, repairs: Times, messages: Indices,
) -> int:  # fmt: skip
    """Fill in each event's neighbours on its timeline, and the type and work of the edge into it.

    Collect the events that are messages, and return their number.
    """
    time, worker, kind, activity, _, _, work = columns
    previous, following, source, target, edge_activity, edge_work = edges
    one, two, eight, half = np.uint32(1), np.uint32(2), np.uint32(8), np.uint64(32)
    number, overlapping, orphans = np.uint64(0), np.uint64(0), np.uint64(0)
    # numba checks indices for their sign unless they have none
    for i in range(np.uint64(low), np.uint64(high)):
        w, event, own, own_work = np.uint32(worker[i]), np.uint32(kind[i]), np.uint32(activity[i]), work[i]
        word, codes = workers.last[w], np.uint32(workers.state[w])
        before, was_work, was = np.int32(word), np.int32(word >> half), codes >> eight
        known = np.uint32(before if before >= 0 else 0)
        gap = time[i] - time[known]
        passed = np.uint32(gap > 0) << one | np.uint32(gap < threshold)
        rule = np.uint32(_RULES[(codes & _STATE) << np.uint32(4) | event << two | passed])
        overlapping += np.uint64(rule >> _OVERLAPS & one)
        orphans += np.uint64(rule >> _IS_ORPHAN)
        edge = np.uint8((_FIXED_TYPES | own << eight | was) >> ((rule & _EDGE) << np.uint32(3)))
        # events of one instant are one vertex: a wait of zero length must not cut a path
        edge_activity[i] = _UNKNOWN if (edge == _WAITING) & (gap == 0) & (before >= 0) else edge
        edge_work[i] = was_work if rule & _EDGE == _AS_BEFORE else own_work
        previous[i], following[i], source[i], target[i] = before, -1, -1, -1
        if before >= 0:
            following[known] = i
        is_activity = event <= _END
        is_open = _IS_OPEN if event == _START else (np.uint32(0) if is_activity else codes & _IS_OPEN)
        doing, doing_work = (own, own_work) if is_activity else (was, was_work)
        workers.last[w] = np.uint64(np.uint32(doing_work)) << half | i
        workers.state[w] = np.uint16(doing << eight | _IS_SEEN | is_open | event)
        messages[number] = i
        number += np.uint64(not is_activity)
    repairs[OVERLAPPING] += np.int64(overlapping)
    repairs[ORPHAN_ENDS] += np.int64(orphans)
    return int(number)


@numba.njit(cache=True)
def _link_events(columns: Columns, edges: Edges, threshold: int, repairs: Times) -> None:
    """Fill in all edges."""
    count = int(columns.worker.max()) + 1 if len(columns.worker) else 0
    workers = _Workers(np.full(count, _NO_EVENT), np.zeros(count, dtype=np.uint16))
    messages, table = np.empty(_BLOCK, dtype=np.int32), np.full(_BLOCK, -1, dtype=np.int32)
    held = 0
    for low in range(0, len(columns.worker), _BLOCK):
        high = min(low + _BLOCK, len(columns.worker))
        number = _link_block(low, high, columns, workers, edges, threshold, repairs, messages)
        while (held + number) * 2 > len(table):
            table = _grow_table(table, columns.correlation, columns.worker, columns.remote)
        held += _match_messages(messages[:number], columns, table, edges, repairs)
    repairs[LOST_SENDS] += held


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
    edges = Edges._make(allocate_columns(len(trace), *[np.int32] * 4, np.uint8, np.int32))
    columns = Columns._make(getattr(trace, name) for name in EVENT_COLUMNS)
    _link_events(columns, edges, gap_threshold_us, found)
    repairs = Repairs(*found.tolist())
    return ActivityGraph(trace, *edges, repairs)
