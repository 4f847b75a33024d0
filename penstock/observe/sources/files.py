"""One file source followed over time: what has come and was read, and the records in it (pure, bounded).

Spark's log says which files each batch took and when they were written, a listing what waits beside them and
how large all are, and progress how many records a batch read. So the records of a file are those of recent
batches by their bytes: where a load rises, files often grow and do not become more.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.observe.latency import Arrivals
from penstock.observe.progress import SourceProgress
from penstock.observe.sources.current_rate import arrival_rate
from penstock.observe.sources.file_log import LoggedFile
from penstock.observe.sources.listing import ListedFile
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

    `logged` are the files of entries that are new in Spark's log; `present` has those in the directory, or
    is None where it was not listed this time. Files that are in no entry and older than `read_before` were
    read: the log was too long to be read whole. `problem` says why it is not known what waits.
    """

    at: float
    logged: tuple[LoggedFile, ...] = ()
    present: Mapping[str, ListedFile] | None = None
    read_before: float = -math.inf
    problem: str = ""


class _Came(NamedTuple):
    """A file that has come: when, and its bytes, NaN where no listing has shown them."""

    arrived: float
    size: float


class _Weight(NamedTuple):
    """What files weigh together: the bytes that are known, and how many have some that are not."""

    known: float
    unknown: int

    @staticmethod
    def of(files: Iterable[_Came]) -> _Weight:
        sizes = np.fromiter((file.size for file in files), dtype=np.float64)
        return _Weight(float(np.nansum(sizes)), int(np.isnan(sizes).sum()))

    def at(self, usual: float) -> float:
        """Return the bytes, where a file whose size is not known has the usual one."""
        return self.known + self.unknown * usual


class FileTrack:
    """Follows one file source; look at its files before you add the reports that came with them."""

    told_by_reading = True
    """The records of files are the query's own counts, which count what is read twice twice."""

    def __init__(self) -> None:
        self.arrivals: Arrivals | None = None
        """When the files of the newest batch had come; None where the log does not tell."""
        self.files: int | None = None
        """How many files the newest batch took."""
        self._entries: dict[int, list[_Came]] = {}
        self._reported: int | None = None
        self._batches: deque[tuple[int, _Weight, float]] = deque(maxlen=_BATCHES_KEPT)
        self._read_by_running = math.nan
        self._taken: set[str] = set()
        self._waiting: dict[str, _Came] = {}
        self._arrivals: Floats = np.zeros(0)
        self._sizes: Floats = np.zeros(0)
        self._first_listed = self._last_listed = math.nan
        self._problem = "it has not been listed yet"
        self._gap = ""

    def look(self, seen: FilesSeen) -> str | None:
        """Take in what the log and the directory show; the answer is a warning, where one is due."""
        came: list[tuple[float, _Came]] = []
        for logged in seen.logged:
            if logged.path in self._taken:
                continue
            file = self._waiting.pop(logged.path, None)
            if file is None:
                size = (seen.present or {}).get(logged.path, ListedFile(logged.modified)).size
                file = _Came(self._arrival(logged.modified, seen.at), size)
                came.append((logged.modified, file))
            self._taken.add(logged.path)
            self._entries.setdefault(logged.entry, []).append(file)
        for entry in sorted(self._entries)[:-_ENTRIES_KEPT]:
            del self._entries[entry]
        if seen.present is not None:
            came += self._list(seen, seen.present)
        if seen.present is not None or seen.problem:
            self._problem = seen.problem
        warning = seen.problem or self._odd_clock(came, seen.at)
        self._note_arrivals([file for _, file in came])
        if seen.present is not None:
            self._first_listed = seen.at if math.isnan(self._first_listed) else self._first_listed
            self._last_listed = seen.at
        return warning or None

    def _list(self, seen: FilesSeen, present: Mapping[str, ListedFile]) -> list[tuple[float, _Came]]:
        """Note what waits; return the files that were not known before, each with its modification."""
        new = present.keys() - self._taken - self._waiting.keys()
        old = {path for path in new if present[path].modified < seen.read_before}
        self._taken |= old
        gone = [self._waiting.pop(path) for path in self._waiting.keys() - present.keys()]
        for path, file in self._waiting.items():
            if math.isnan(file.size):
                self._waiting[path] = file._replace(size=present[path].size)
        self._forget_arrivals(file.arrived for file in gone)
        came = {
            path: _Came(self._arrival(present[path].modified, seen.at), present[path].size)
            for path in new - old
        }
        self._waiting |= came
        if len(self._taken) > len(present) + _PATHS_KEPT:
            self._taken = {path for path in self._taken if path in present} | {f.path for f in seen.logged}
        return [(present[path].modified, file) for path, file in came.items()]

    def _arrival(self, modified: float, at: float) -> float:
        """Return when a file came: when it was written, but after the listing that did not show it yet."""
        earliest = -math.inf if math.isnan(self._last_listed) else self._last_listed
        return min(max(modified, earliest), at)

    def _odd_clock(self, came: list[tuple[float, _Came]], at: float) -> str | None:
        odd = [
            modified - arrived
            for modified, (arrived, _) in came
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
        places = places[self._arrivals[places] == gone]
        self._arrivals, self._sizes = np.delete(self._arrivals, places), np.delete(self._sizes, places)

    def _note_arrivals(self, came: list[_Came]) -> None:
        if came:
            moments = np.concatenate((self._arrivals, [file.arrived for file in came]))
            sizes = np.concatenate((self._sizes, [file.size for file in came]))
            order = np.argsort(moments, kind="stable")[-_ARRIVALS_KEPT:]
            self._arrivals, self._sizes = moments[order], sizes[order]

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
        known = [files for files in entries if files is not None]
        self._gap = ""
        if len(known) < len(entries):
            # every file that these entries have would count as waiting
            self._gap = f"Spark's log of {source.description} lacks entry {last}: what was read is unknown"
            return self._gap
        files = [file for entry in known for file in entry]
        moments = np.array([file.arrived for file in files])
        self.files = len(files)
        self._batches.append((self.files, _Weight.of(files), source.input_records))
        self.arrivals = Arrivals(float(moments.mean()), float(moments.min()), source.input_records)
        return None

    @property
    def problem(self) -> str:
        """Why it is not known now what is offered; empty where it is."""
        return self._problem or self._gap

    def missed_reports(self) -> None:
        """Spark kept fewer reports than there were; each one tells of its own files, so nothing is lost."""

    def expect(self, read_by_running: float) -> None:
        """Take what the running batch has read so far for all that it took, until a batch was reported."""
        self._read_by_running = read_by_running

    def _find_usual_size(self) -> float:
        """Return the bytes that a file has lately in the mean; where none is known, files count alike."""
        known = self._sizes[~np.isnan(self._sizes)][-_FILES_OF_RECENT_BATCHES:]
        return float(known.mean()) if known.any() else 1.0

    @property
    def records_per_byte(self) -> float:
        """Records in a byte of the recent batches (in a file where no size is known); NaN before any."""
        usual = self._find_usual_size()
        files, size, records = 0, 0.0, 0.0
        for some, weight, read in reversed(self._batches):
            files, size, records = files + some, size + weight.at(usual), records + read
            if files >= _FILES_OF_RECENT_BATCHES:
                break
        if not files:
            size, records = self._weigh_running(usual), self._read_by_running or math.nan
        if size > 0:
            return records / size
        return 0.0 if files else math.nan

    def _list_running(self) -> list[_Came]:
        """List the files that batches have taken which were not reported yet."""
        if not self._entries:
            return []
        # before the first report of a run the newest entry is that of the batch that runs
        reported = max(self._entries) - 1 if self._reported is None else self._reported
        return [file for number, files in self._entries.items() if number > reported for file in files]

    def _weigh_running(self, usual: float) -> float:
        return _Weight.of(self._list_running()).at(usual)

    def measure_offered(
        self, start: float, now: float, period: float, at_rest: bool = False
    ) -> tuple[float, float]:
        """Return the rate offered in [start, now), and the backlog in records; NaN and 0 while unknown."""
        usual, density = self._find_usual_size(), self.records_per_byte
        if self.problem or math.isnan(density) or math.isnan(self._last_listed):
            return math.nan, 0.0
        end = min(now, self._last_listed)
        sizes = np.where(np.isnan(self._sizes), usual, self._sizes)
        come = arrival_rate(self._arrivals, end - (now - start), end, sizes)
        left = self._weigh_running(usual) + _Weight.of(self._waiting.values()).at(usual)
        unread = OfferedSample(self._last_listed, left, 0.0)
        return density * come, density * unread_records(come, period, unread, end if at_rest else now)

    @property
    def idle_seconds(self) -> float:
        """For how long the listings have shown nothing new while nothing waited."""
        if self.problem or math.isnan(self._last_listed) or self._waiting or self._list_running():
            return 0.0
        newest = float(self._arrivals[-1]) if len(self._arrivals) else -math.inf
        return max(0.0, self._last_listed - max(newest, self._first_listed))


def _entry(offset: Any) -> int | None:
    # checkpoints of old versions have the plain number
    number = offset.get("logOffset") if isinstance(offset, Mapping) else offset
    return number if isinstance(number, int) else None
