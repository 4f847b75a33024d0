"""One file source followed over time: what has come and was read, and the records in a file (pure, bounded).

Spark's log says which files each batch took and when they were written, a listing what waits beside them, and
progress how many records a batch read. So the records of a file are those of recent batches by their files.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.observe.latency import Arrivals
from penstock.observe.progress import SourceProgress
from penstock.observe.sources.current_rate import arrival_rate
from penstock.observe.sources.file_log import LoggedFile
from penstock.observe.sources.offered import OfferedSample, unread_records

_ENTRIES_KEPT = 512
_BATCHES_KEPT = 8
_FILES_OF_RECENT_BATCHES = 32
"""Files may change in size: the newest batches count, until they have so many files."""
_ARRIVALS_KEPT = 20_000
_PATHS_KEPT = 20_000
"""Paths of files that were read and are no longer there; one that comes again is not read again."""
_AHEAD_SECONDS = 5.0
_BEHIND_SECONDS = 60.0
"""A file so much newer than the clock, or older than the listing before it, has a time of another clock."""


@dataclass(frozen=True, slots=True)
class FilesSeen:
    """One look at a file source, at a moment of the driver's clock.

    `logged` are the files of entries that are new in Spark's log; `present` has those in the directory with
    the moments of their modification, or is None where it was not listed this time. Files that are in no
    entry and older than `read_before` were read: the log was too long to be read whole. `problem` says why it
    is not known what waits.
    """

    at: float
    logged: tuple[LoggedFile, ...] = ()
    present: Mapping[str, float] | None = None
    read_before: float = -math.inf
    problem: str = ""


class FileTrack:
    """Follows one file source; look at its files before you add the reports that came with them."""

    told_by_reading = True
    """The records of files are the query's own counts, which count what is read twice twice."""

    def __init__(self) -> None:
        self.arrivals: Arrivals | None = None
        """When the files of the newest batch had come; None where the log does not tell."""
        self.files: int | None = None
        """How many files the newest batch took."""
        self.expected_records_per_file = math.nan
        """Taken until a batch has been reported."""
        self._entries: dict[int, list[float]] = {}
        self._reported: int | None = None
        self._batches: deque[tuple[int, float]] = deque(maxlen=_BATCHES_KEPT)
        self._taken: set[str] = set()
        self._waiting: dict[str, float] = {}
        self._arrivals: Floats = np.zeros(0)
        self._first_listed = self._last_listed = math.nan
        self._problem = "it has not been listed yet"
        self._gap = ""

    def look(self, seen: FilesSeen) -> str | None:
        """Take in what the log and the directory show; the answer is a warning, where one is due."""
        came: list[tuple[float, float]] = []
        for file in seen.logged:
            if file.path in self._taken:
                continue
            arrived = self._waiting.pop(file.path, None)
            if arrived is None:
                arrived = self._arrival(file.modified, seen.at)
                came.append((file.modified, arrived))
            self._taken.add(file.path)
            self._entries.setdefault(file.entry, []).append(arrived)
        for entry in sorted(self._entries)[:-_ENTRIES_KEPT]:
            del self._entries[entry]
        if seen.present is not None:
            came += self._list(seen, seen.present)
        if seen.present is not None or seen.problem:
            self._problem = seen.problem
        warning = seen.problem or self._odd_clock(came, seen.at)
        self._note_arrivals(arrived for _, arrived in came)
        if seen.present is not None:
            self._first_listed = seen.at if math.isnan(self._first_listed) else self._first_listed
            self._last_listed = seen.at
        return warning or None

    def _list(self, seen: FilesSeen, present: Mapping[str, float]) -> list[tuple[float, float]]:
        """Note what waits; return the files that were not known before."""
        new = present.keys() - self._taken - self._waiting.keys()
        old = {path for path in new if present[path] < seen.read_before}
        self._taken |= old
        self._forget_arrivals([self._waiting.pop(path) for path in self._waiting.keys() - present.keys()])
        came = {path: self._arrival(present[path], seen.at) for path in new - old}
        self._waiting |= came
        if len(self._taken) > len(present) + _PATHS_KEPT:
            self._taken = {path for path in self._taken if path in present} | {f.path for f in seen.logged}
        return [(present[path], arrived) for path, arrived in came.items()]

    def _arrival(self, modified: float, at: float) -> float:
        """Return when a file came: when it was written, but after the listing that did not show it yet."""
        earliest = -math.inf if math.isnan(self._last_listed) else self._last_listed
        return min(max(modified, earliest), at)

    def _odd_clock(self, came: list[tuple[float, float]], at: float) -> str | None:
        odd = [
            modified - arrived
            for modified, arrived in came
            if modified > at + _AHEAD_SECONDS or modified < arrived - _BEHIND_SECONDS
        ]
        if not odd or 2 * len(odd) < len(came):
            return None
        apart = float(np.median(odd))
        return (
            f"new files bear times {abs(apart):.0f} s {'after' if apart > 0 else 'before'} the moment at "
            "which they were seen: they count as having come when they were listed"
        )

    def _forget_arrivals(self, arrived: Iterable[float]) -> None:
        """Take back the arrivals of files that are gone unread: what nobody reads was not offered."""
        gone = np.sort(np.fromiter(arrived, dtype=np.float64))
        # of several that came at the same moment, as many go as are gone
        places = np.searchsorted(self._arrivals, gone) + np.arange(len(gone)) - np.searchsorted(gone, gone)
        there = places < len(self._arrivals)
        places, gone = places[there], gone[there]
        self._arrivals = np.delete(self._arrivals, places[self._arrivals[places] == gone])

    def _note_arrivals(self, arrived: Iterable[float]) -> None:
        new = np.fromiter(arrived, dtype=np.float64)
        if len(new):
            self._arrivals = np.sort(np.concatenate((self._arrivals, new)))[-_ARRIVALS_KEPT:]

    def add(self, source: SourceProgress, _at: float) -> str | None:
        """Take in one report; the answer is a warning, where one is due."""
        self.arrivals, self.files = None, None
        first, last = _entry(source.start_offset), _entry(source.end_offset)
        if source.end_offset is None:
            return None
        if last is None:
            return f"{source.description}: an offset of its log was expected, not {source.end_offset!r}"
        begin = -1 if first is None else first
        self._reported = last
        if last == begin or last - begin > _ENTRIES_KEPT:
            return None
        entries = [self._entries.get(number) for number in range(begin + 1, last + 1)]
        known = [moments for moments in entries if moments is not None]
        self._gap = ""
        if len(known) < len(entries):
            # every file that these entries have would count as waiting
            self._gap = f"Spark's log of {source.description} lacks entry {last}: what was read is unknown"
            return self._gap
        moments = np.concatenate(known)
        self.files = len(moments)
        self._batches.append((self.files, source.input_records))
        self.arrivals = Arrivals(float(moments.mean()), float(moments.min()), source.input_records)
        return None

    @property
    def problem(self) -> str:
        """Why it is not known now what is offered; empty where it is."""
        return self._problem or self._gap

    def missed_reports(self) -> None:
        """Spark kept fewer reports than there were; each one tells of its own files, so nothing is lost."""

    @property
    def records_per_file(self) -> float:
        """Records in a file of the recent batches; NaN until one was reported."""
        files, records = 0, 0.0
        for some, read in reversed(self._batches):
            files, records = files + some, records + read
            if files >= _FILES_OF_RECENT_BATCHES:
                break
        return records / files if files else self.expected_records_per_file

    @property
    def running_files(self) -> int:
        """Files that batches have taken which were not reported yet."""
        if not self._entries:
            return 0
        # before the first report of a run the newest entry is that of the batch that runs
        reported = max(self._entries) - 1 if self._reported is None else self._reported
        return sum(len(moments) for number, moments in self._entries.items() if number > reported)

    def measure_offered(
        self, start: float, now: float, period: float, at_rest: bool = False
    ) -> tuple[float, float]:
        """Return the rate offered in [start, now), and the backlog in records; NaN and 0 while unknown."""
        unit = self.records_per_file
        if self.problem or math.isnan(unit) or math.isnan(self._last_listed):
            return math.nan, 0.0
        end = min(now, self._last_listed)
        files = arrival_rate(self._arrivals, end - (now - start), end)
        unread = OfferedSample(self._last_listed, float(self.running_files + len(self._waiting)), 0.0)
        return unit * files, unit * unread_records(files, period, unread, end if at_rest else now)

    @property
    def idle_seconds(self) -> float:
        """For how long the listings have shown nothing new while nothing waited."""
        if self.problem or math.isnan(self._last_listed) or self._waiting or self.running_files:
            return 0.0
        newest = float(self._arrivals[-1]) if len(self._arrivals) else -math.inf
        return max(0.0, self._last_listed - max(newest, self._first_listed))


def _entry(offset: Any) -> int | None:
    # checkpoints of old versions have the plain number
    number = offset.get("logOffset") if isinstance(offset, Mapping) else offset
    return number if isinstance(number, int) else None
