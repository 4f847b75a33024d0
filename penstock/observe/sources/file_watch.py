"""Looks at one file source from outside: what is new in Spark's log, and what lies in its directory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from io import SEEK_END
from pathlib import Path
from time import perf_counter
from typing import Protocol

from penstock.errors import BadMetrics, SparkUnavailable
from penstock.observe.sources.file_log import LoggedFile, LogName, choose_unread, parse_log
from penstock.observe.sources.files import FilesSeen
from penstock.observe.sources.listing import ListedFile

_FIRST_BYTES = 1 << 16
_MOST_BYTES = 1 << 23
"""About 80,000 files; a compact file may have all that were ever read."""
_REST = 20.0
"""A listing rests for so many times as long as it took: at most 5 % of the time goes into listing."""


class WatchedPlace(Protocol):
    """A file system, as far as a log is read from it; what is not there raises FileNotFoundError."""

    def names(self, directory: str) -> list[str]:
        """Return the names of the files in a directory."""

    def read_end(self, path: str, most_bytes: int) -> tuple[bytes, bool]:
        """Return the end of a file, and whether its beginning was left out."""


class Listing(Protocol):
    """The files that a source would read."""

    def list_files(self, now: float) -> Mapping[str, ListedFile]:
        """Return the files by their paths; BadMetrics where the place is gone or holds too many."""


class LocalPlace:
    """The driver's own disks."""

    def names(self, directory: str) -> list[str]:
        """Return the names of the files in a directory."""
        return [one.name for one in Path(directory).iterdir()]

    def read_end(self, path: str, most_bytes: int) -> tuple[bytes, bool]:
        """Return the end of a file, and whether its beginning was left out."""
        with Path(path).open("rb") as file:
            begin = max(0, file.seek(0, SEEK_END) - most_bytes)
            file.seek(begin)
            return file.read(), begin > 0


class LogReader:
    """Reads the entries of one source's log that are new since the last time."""

    def __init__(self, place: WatchedPlace, directory: str) -> None:
        self._place, self._directory = place, directory
        self._last = -1

    def read_new(self) -> tuple[tuple[LoggedFile, ...], float]:
        """Return the files of new entries, and the moment before which files count as read (or -infinity)."""
        found: list[LoggedFile] = []
        read_before = -math.inf
        try:
            for name in choose_unread(self._place.names(self._directory), self._last):
                files, cut_off = self._read(name)
                found += files
                self._last = name.entry
                if cut_off and files:
                    read_before = min(file.modified for file in files)
        except FileNotFoundError:
            # no batch was planned yet, or Spark has just removed what a compact file has: next time, then
            pass
        return tuple(found), read_before

    def _read(self, name: LogName) -> tuple[list[LoggedFile], bool]:
        """Read one file of the log from its end, where new entries are, as far back as is needed."""
        most = _MOST_BYTES if self._last < 0 or not name.compact else _FIRST_BYTES
        while True:
            content, cut_off = self._place.read_end(f"{self._directory}/{name.name}", most)
            try:
                files = parse_log(content.decode(errors="replace"), cut_off)
            except BadMetrics as error:
                raise BadMetrics(
                    f"{self._directory}/{name.name}, Spark's log of files read: {error}"
                ) from error
            reached = bool(files) and files[0].entry <= self._last
            if reached or not cut_off or most >= _MOST_BYTES:
                return [file for file in files if file.entry > self._last], cut_off and not reached
            most *= 4


class FileWatch:
    """Looks at one source; a listing that takes long is not repeated at once."""

    def __init__(self, log: LogReader, listing: Listing) -> None:
        self._log, self._listing = log, listing
        self._rest_until = -math.inf

    def look(self, at: float) -> FilesSeen:
        """Return what is to be seen at this moment of the driver's clock."""
        present: Mapping[str, ListedFile] | None = None
        logged: tuple[LoggedFile, ...] = ()
        read_before, problem = -math.inf, ""
        try:
            if at >= self._rest_until:
                begun = perf_counter()
                present = self._listing.list_files(at)
                self._rest_until = at + _REST * (perf_counter() - begun)
            # after the listing: what a batch takes meanwhile is in both, or in the log alone
            logged, read_before = self._log.read_new()
        except (BadMetrics, OSError, SparkUnavailable) as error:
            problem = str(error)
        return FilesSeen(at, logged, present, read_before, problem)
