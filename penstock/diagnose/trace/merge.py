"""Merge runs of events that are each in order of time, such as one for each worker.

Time is cut into slices of some ten thousand events. A slice's times are sorted by their digits, each with its
place among the runs; its columns are packed into words run by run, and picked in order while in the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from penstock.diagnose.trace.memory import allocate_columns

Times = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Codes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

_EVENTS_OF_SLICE = 16_000
MOST_RUNS = 4096
"""With more runs, finding each one's part of a slice costs more than a sort."""
_DIGIT = 10
"""Bits of a digit: its histogram fits in the fastest cache, and two digits sort a slice of a dense trace."""
_MOST_DIGITS = 6


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
    """Room for one slice: its times, sort keys, the same once more, and words of packed columns."""

    times: Times
    keys: Words
    spare: Words
    words: Words
    counts: npt.NDArray[np.uint32]


class _Cut(NamedTuple):
    """A slice: each run's part, and where the slice lies in the merged columns."""

    first: Times
    until: Times
    at: int
    size: int


def merge_runs(columns: Columns, bounds: Times) -> Columns:
    """Return the events in order of time, those of one instant in the order of their runs.

    Run r is `bounds[r]` up to `bounds[r + 1]`, and is in order of time.
    """
    merged = Columns._make(allocate_columns(len(columns.time), *(column.dtype for column in columns)))
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
    words = np.empty((3, size), np.uint64)
    counts = np.empty((_MOST_DIGITS, 1 << _DIGIT), np.uint32)
    return _Scratch(np.empty(size, np.int64), words[0], words[1], words[2], counts)


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
            cut = _Cut(first, until, at, count)
            places = _order_slice(time, cut, scratch, merged.time)
            _pick_codes(columns, cut, places, scratch.words, merged)
            _pick_correlations(columns.correlation, cut, places, scratch.words, merged.correlation)
            _pick_names(columns, cut, places, scratch.words, merged)
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
def _order_slice(time: Times, cut: _Cut, scratch: _Scratch, merged: Times) -> Words:
    """Fill in the sorted times of a slice, and return the place of each among the times of its runs."""
    times, count, held = scratch.times, cut.size, 0
    low = high = time[cut.first[np.argmax(cut.until > cut.first)]]
    for r in range(len(cut.first)):
        part = time[cut.first[r] : cut.until[r]]
        for i in range(len(part)):
            times[held + i] = part[i]
        if len(part) > 0:
            low, high = min(low, part[0]), max(high, part[-1])
        held += len(part)
    bits, shift = _count_bits(high - low), _count_bits(count)
    ordered = merged[cut.at : cut.at + count]
    if bits > _DIGIT * _MOST_DIGITS or bits + shift > 64:
        return _sort_slice(times[:count], scratch.keys, ordered)
    places = _sort_digits(times[:count], low, bits, shift, scratch)
    mask = np.uint64((1 << shift) - 1)
    for i in range(count):
        ordered[i] = np.int64(places[i] >> np.uint64(shift)) + low
        places[i] &= mask
    return places


@numba.njit(cache=True)
def _count_bits(number: int) -> int:
    bits = 0
    while number >> bits > 0:
        bits += 1
    return bits


@numba.njit(cache=True)
def _sort_slice(times: Times, places: Words, ordered: Times) -> Words:
    """Sort times that, with their places, do not fit in a word: a few may be years from the others."""
    order = np.argsort(times, kind="mergesort")
    for i in range(len(times)):
        ordered[i], places[i] = times[order[i]], np.uint64(order[i])
    return places


@numba.njit(cache=True)
def _sort_digits(times: Times, low: int, bits: int, shift: int, scratch: _Scratch) -> Words:
    """Return times since `low`, each followed by its place, sorted digit by digit from the lowest."""
    keys, spare, counts = scratch.keys, scratch.spare, scratch.counts
    digits, mask, one = (bits + _DIGIT - 1) // _DIGIT, np.uint64((1 << _DIGIT) - 1), np.uint32(1)
    counts[:digits] = 0
    for i in range(len(times)):
        since = np.uint64(times[i] - low)
        keys[i] = since << np.uint64(shift) | np.uint64(i)
        for digit in range(digits):
            counts[digit, since >> np.uint64(digit * _DIGIT) & mask] += one
    for digit in range(digits):
        begins, total = counts[digit], np.uint32(0)
        for value in range(len(begins)):
            number = begins[value]
            begins[value] = total
            total += number
        skipped = np.uint64(shift + digit * _DIGIT)
        for i in range(len(times)):
            value = keys[i] >> skipped & mask
            place = begins[value]
            spare[place], begins[value] = keys[i], place + one
        keys, spare = spare, keys
    return keys


@numba.njit(cache=True)
def _pick_codes(columns: Columns, cut: _Cut, places: Words, words: Words, merged: Columns) -> None:
    """Fill in a slice of workers, kinds and activities."""
    held, eight = 0, np.uint64(8)
    for r in range(len(cut.first)):
        part = slice(cut.first[r], cut.until[r])
        worker, kind, activity = columns.worker[part], columns.kind[part], columns.activity[part]
        for i in range(len(worker)):
            codes = np.uint64(kind[i]) << eight | np.uint64(activity[i])
            words[held + i] = codes << np.uint64(32) | np.uint64(np.uint32(worker[i]))
        held += len(worker)
    whole = slice(cut.at, cut.at + cut.size)
    worker, kind, activity = merged.worker[whole], merged.kind[whole], merged.activity[whole]
    for i in range(cut.size):
        word = words[places[i]]
        worker[i], activity[i] = np.int32(word), np.uint8(word >> np.uint64(32))
        kind[i] = np.uint8(word >> np.uint64(40))


@numba.njit(cache=True)
def _pick_names(columns: Columns, cut: _Cut, places: Words, words: Words, merged: Columns) -> None:
    """Fill in a slice of remote workers and of work."""
    held = 0
    for r in range(len(cut.first)):
        part = slice(cut.first[r], cut.until[r])
        remote, work = columns.remote[part], columns.work[part]
        for i in range(len(remote)):
            words[held + i] = np.uint64(work[i]) << np.uint64(32) | np.uint64(np.uint32(remote[i]))
        held += len(remote)
    whole = slice(cut.at, cut.at + cut.size)
    remote, work = merged.remote[whole], merged.work[whole]
    for i in range(cut.size):
        word = words[places[i]]
        remote[i], work[i] = np.int32(word), np.int32(word >> np.uint64(32))


@numba.njit(cache=True)
def _pick_correlations(column: Times, cut: _Cut, places: Words, words: Words, merged: Times) -> None:
    held = 0
    for r in range(len(cut.first)):
        part = column[cut.first[r] : cut.until[r]]
        for i in range(len(part)):
            words[held + i] = np.uint64(part[i])
        held += len(part)
    ordered = merged[cut.at : cut.at + cut.size]
    for i in range(cut.size):
        ordered[i] = np.int64(words[places[i]])
