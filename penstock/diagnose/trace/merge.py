"""Merge runs of events that are each in order of time, such as one for each worker, column by column.

Time is cut into slices of some ten thousand events. A slice is spread over as many buckets as it has events,
and put right by insertion; its columns are copied run by run and picked in order while they are in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Codes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.uint32]

_EVENTS_OF_SLICE = 12_000
MOST_RUNS = 4096
"""With more runs, finding each one's part of a slice costs more than a sort."""
_MOST_MOVES = 8
"""Moves for each event before insertion is given up for a sort: times that huddle share a bucket."""


class Columns(NamedTuple):
    """The columns of events."""

    time: Times
    worker: Indices
    kind: Codes
    activity: Codes
    correlation: Times
    remote: Indices
    work: Indices


class _Scratch(NamedTuple):
    """Room for one slice."""

    times: Times
    stamps: Times
    ends: Places
    places: Places
    narrow: Indices
    codes: Codes


class _Cut(NamedTuple):
    """A slice: each run's part, their order, and where the slice lies in the merged columns."""

    first: Times
    until: Times
    places: Places
    at: int
    size: int


def merge_runs(columns: Columns, bounds: Times) -> Columns:
    """Return the events in order of time, those of one instant in the order of their runs.

    Run r is `bounds[r]` up to `bounds[r + 1]`, and is in order of time.
    """
    merged = Columns._make(np.empty_like(column) for column in columns)
    _merge_slices(columns, bounds, merged)
    return merged


@numba.njit(cache=True)
def find_runs(time: Times) -> Times:
    """Return where the runs of a column begin that are in order of time, and its length."""
    number = 2
    for i in range(1, len(time)):
        number += time[i] < time[i - 1]
    bounds = np.zeros(number, dtype=np.int64)
    number = 1
    for i in range(1, len(time)):
        if time[i] < time[i - 1]:
            bounds[number] = i
            number += 1
    bounds[number] = len(time)
    return bounds


@numba.njit(cache=True)
def _make_scratch(size: int) -> _Scratch:
    times, stamps = np.empty(size, np.int64), np.empty(size, np.int64)
    ends, places = np.empty(size + 3, np.uint32), np.empty(size, np.uint32)
    return _Scratch(times, stamps, ends, places, np.empty(size, np.int32), np.empty(size, np.uint8))


@numba.njit(cache=True)
def _merge_slices(columns: Columns, bounds: Times, merged: Columns) -> None:
    time, first, until = columns.time, bounds[:-1].copy(), bounds[:-1].copy()
    slices = len(time) // _EVENTS_OF_SLICE + 1
    low, high = time[0], time[0]
    for r in range(len(first)):
        low, high = min(low, time[bounds[r]]), max(high, time[bounds[r + 1] - 1])
    width = (high - low) // slices + 1
    scratch = _make_scratch(2 * _EVENTS_OF_SLICE)
    at = 0
    for number in range(slices):
        count = _find_slice(time, bounds, low + (number + 1) * width, first, until)
        if count > len(scratch.times):
            scratch = _make_scratch(count)
        if count > 0:
            _copy_runs(time, first, until, scratch.times)
            _order_slice(scratch, count)
            merged.time[at : at + count] = scratch.stamps[:count]
            cut = _Cut(first, until, scratch.places, at, count)
            _pick(columns.worker, cut, scratch.narrow, merged.worker)
            _pick(columns.kind, cut, scratch.codes, merged.kind)
            _pick(columns.activity, cut, scratch.codes, merged.activity)
            _pick(columns.correlation, cut, scratch.times, merged.correlation)
            _pick(columns.remote, cut, scratch.narrow, merged.remote)
            _pick(columns.work, cut, scratch.narrow, merged.work)
            at += count


@numba.njit(cache=True)
def _find_slice(time: Times, bounds: Times, end: int, first: Times, until: Times) -> int:
    """Move each run's part on to the events before `end`; return their number."""
    count = 0
    for r in range(len(first)):
        first[r] = i = until[r]
        stop = bounds[r + 1]
        while i < stop and time[i] < end:
            i += 1
        until[r] = i
        count += i - first[r]
    return count


@numba.njit(cache=True)
def _copy_runs(column: npt.NDArray[Any], first: Times, until: Times, copy: npt.NDArray[Any]) -> None:
    """Copy the runs' parts one after the other."""
    held = 0
    for r in range(len(first)):
        part = column[first[r] : until[r]]
        room = copy[held : held + len(part)]
        for i in range(len(part)):
            room[i] = part[i]
        held += len(part)


@numba.njit(cache=True)
def _pick(column: npt.NDArray[Any], cut: _Cut, copy: npt.NDArray[Any], merged: npt.NDArray[Any]) -> None:
    """Fill in the part of a merged column that belongs to a slice."""
    _copy_runs(column, cut.first, cut.until, copy)
    places, part = cut.places, merged[cut.at : cut.at + cut.size]
    for i in range(len(part)):
        part[i] = copy[places[i]]


@numba.njit(cache=True)
def _order_slice(scratch: _Scratch, count: int) -> None:
    """Fill in the sorted times of a slice, and the place of each among the times of its runs."""
    times, stamps, ends, places, _, _ = scratch
    low, high = times[0], times[0]
    for i in range(count):
        low, high = min(low, times[i]), max(high, times[i])
    scale = count / (float(high - low) + 1.0)
    one, two = np.uint32(1), np.uint32(2)
    ends[: count + 3] = 0
    for i in range(count):
        ends[np.uint32((times[i] - low) * scale) + two] += one
    for b in range(2, count + 3):
        ends[b] += ends[b - 1]
    for i in range(count):
        bucket = np.uint32((times[i] - low) * scale) + one
        at = ends[bucket]
        stamps[at], places[at] = times[i], np.uint32(i)
        ends[bucket] = at + one
    if not _insert(stamps, places, count):
        order = np.argsort(times[:count], kind="mergesort")
        for i in range(count):
            stamps[i], places[i] = times[order[i]], np.uint32(order[i])


@numba.njit(cache=True)
def _insert(stamps: Times, places: Places, count: int) -> bool:
    """Sort times that are nearly in order, stably; return False if they are too far from it."""
    left = _MOST_MOVES * count
    for i in range(1, count):
        stamp = stamps[i]
        if stamp < stamps[i - 1]:
            place, j = places[i], i
            while j > 0 and stamps[j - 1] > stamp:
                stamps[j], places[j] = stamps[j - 1], places[j - 1]
                j -= 1
            stamps[j], places[j] = stamp, place
            left -= i - j
            if left < 0:
                return False
    return True
