"""A fleet's directory for those who look at it again and again: a file is read once, until it changes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from penstock.fleet.files import count_lines
from penstock.fleet.places import SHOWN, FleetDirectory, join_status, read_shown, read_status

Content = TypeVar("Content")
Identity = tuple[int, int, int]


class RememberedFleet(FleetDirectory):
    """Answers as the directory does, from memory where a file is the one that was read; safe in threads."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._known: dict[Path, tuple[Identity, Any]] = {}
        self._joined: tuple[tuple[int, ...], pa.Table | None] = ((), None)
        self._lock = threading.Lock()

    def status(self) -> pa.Table | None:
        """Return how all applications stand; the same table while no file has changed."""
        with self._lock:
            buckets = self._recall_all(self.root / "status", "bucket-*.parquet", read_status)
            identity = tuple(map(id, buckets))
            if identity != self._joined[0]:
                joined = join_status(buckets)
                # whole columns: those who look take them apart again and again
                self._joined = identity, None if joined is None else joined.combine_chunks()
            return self._joined[1]

    def decisions(self, since: float = -math.inf, until: float = math.inf) -> list[dict[str, Any]]:
        """Return the decisions between two moments, in the order of their batches."""
        with self._lock:
            files = [path for _, path in self.recent_files(since)]
            self._forget(self._decisions, files)
            rows = [row for path in files for row in self._recall(path, _list_shown) or ()]
        return [row for row in rows if isinstance(row["at"], float) and since <= row["at"] <= until]

    def dead_letters(self) -> int:
        """Count the bad records."""
        with self._lock:
            return sum(self._recall_all(self.root / "dead-letters", "batch-*.jsonl", count_lines))

    def _recall_all(self, directory: Path, pattern: str, read: Callable[[Path], Content]) -> list[Content]:
        files = sorted(directory.glob(pattern))
        self._forget(directory, files)
        return [found for path in files if (found := self._recall(path, read)) is not None]

    def _recall(self, path: Path, read: Callable[[Path], Content]) -> Content | None:
        """Return what a file holds; None for one that has gone meanwhile."""
        identity = _identify(path)
        if identity is None:
            return None
        known = self._known.get(path)
        if known is None or known[0] != identity:
            # one that changes while it is read has another identity at the next look
            known = self._known[path] = identity, read(path)
        content: Content = known[1]
        return content

    def _forget(self, directory: Path, files: list[Path]) -> None:
        """Drop what was read from files of a directory that are not looked at any more."""
        there = set(files)
        for path in [one for one in self._known if one.parent == directory and one not in there]:
            del self._known[path]


def _identify(path: Path) -> Identity | None:
    """Return what changes with a file: files of a fleet are written whole, and then put in place."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _list_shown(path: Path) -> list[dict[str, Any]]:
    """Read the decisions of a file, and keep of each no more than is shown."""
    return [{name: row[name] for name in SHOWN} for row in read_shown(path)]
