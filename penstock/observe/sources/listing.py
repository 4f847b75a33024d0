"""Lists what a file source would read on the driver's own disks, again and again at little cost.

A directory is read anew only when it has changed, and a file is looked at once. Which directories count is as
in Spark: those given, in them partitions (`day=1`), and with `recursiveFileLookup` all below.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from penstock.errors import BadMetrics
from penstock.observe.sources.file_log import is_hidden

_SETTLED_SECONDS = 2.0
"""A directory changed again within the tick of its file system's clock would look unchanged."""
_BRACES = re.compile(r"\{([^{}]*)\}")


class ListedFile(NamedTuple):
    """A file in a directory: when it was modified, and its bytes (NaN where none are known yet)."""

    modified: float
    size: float = math.nan

    @staticmethod
    def of(modified: float, size: float) -> ListedFile:
        """Return a file; one without bytes may be just being written in its place."""
        return ListedFile(modified, size or math.nan)


@dataclass(frozen=True, slots=True)
class ListingRule:
    """Which files below a path count; the path may hold wild cards."""

    path: str
    recursive: bool = False
    name_pattern: str | None = None
    oldest_seconds: float = 7 * 86400.0
    """Files so much older than the newest one are left out (`maxFileAge`)."""
    most_files: int = 200_000
    """A place with more is not listed."""

    @property
    def patterns(self) -> list[str]:
        """The paths without alternatives in braces."""
        return list(expand_braces(self.path))

    @property
    def has_wild_cards(self) -> bool:
        """Whether the path may match nothing without being wrong."""
        return any(sign in self.path for sign in "*?[{")

    def takes(self, name: str) -> bool:
        """Whether a file of this name counts."""
        if is_hidden(name):
            return False
        return self.name_pattern is None or any(
            fnmatchcase(name, pattern) for pattern in expand_braces(self.name_pattern)
        )

    def enters(self, name: str) -> bool:
        """Whether the files of a directory of this name, below one that counts, count too."""
        return not is_hidden(name) and (self.recursive or "=" in name)

    def check_roots(self, found: int, had_directory: bool) -> None:
        """Reject wild cards that match nothing any more, where they matched a directory."""
        if had_directory and not found:
            raise BadMetrics(
                f"nothing matches {self.path} any more: what waits to be read there is not known"
            )

    def check_size(self, found: int) -> None:
        """Reject a place that holds too many files: listing it would cost too much, again and again."""
        if found > self.most_files:
            raise BadMetrics(
                f"{self.path} holds more than {self.most_files} files: what waits there is not counted; "
                "let Spark move or remove the files that it has read (cleanSource)"
            )

    def drop_aged(self, files: dict[str, ListedFile]) -> dict[str, ListedFile]:
        """Drop the files that are too old for Spark to read."""
        moments = [file.modified for file in files.values()]
        oldest = max(moments, default=0.0) - self.oldest_seconds
        if min(moments, default=0.0) >= oldest:
            return files
        return {path: file for path, file in files.items() if file.modified >= oldest}


def expand_braces(pattern: str) -> Iterator[str]:
    """Yield the patterns that one with alternatives stands for: `{a,b}/c` for `a/c` and `b/c`."""
    found = _BRACES.search(pattern)
    if found is None:
        yield pattern
        return
    for choice in found.group(1).split(","):
        yield from expand_braces(pattern[: found.start()] + choice + pattern[found.end() :])


@dataclass(slots=True)
class _Directory:
    modified: float = -1.0
    read_at: float = -1.0
    files: dict[str, ListedFile] = field(default_factory=dict)
    directories: list[str] = field(default_factory=list)


class LocalListing:
    """Lists the files of one source; remembers what it has seen, so that the next listing is cheap."""

    def __init__(self, rule: ListingRule) -> None:
        self._rule = rule
        self._known: dict[str, _Directory] = {}
        self._had_directory = False

    def list_files(self, now: float) -> Mapping[str, ListedFile]:
        """Return the files by their paths; BadMetrics where the place is gone or holds too many."""
        found: dict[str, ListedFile] = {}
        before, self._known = self._known, {}
        roots = self._roots()
        self._rule.check_roots(len(roots), self._had_directory)
        for root in roots:
            if root.is_dir():
                self._had_directory = True
                self._walk(str(root), before, now, found)
            elif self._rule.takes(root.name) and root.exists():
                found[str(root)] = _describe(root.stat())
        return self._rule.drop_aged(found)

    def _roots(self) -> list[Path]:
        rule = self._rule
        if rule.has_wild_cards:
            return sorted({root for pattern in rule.patterns for root in Path("/").glob(pattern.lstrip("/"))})
        if not Path(rule.path).exists():
            raise BadMetrics(f"{rule.path} is gone: what waits to be read there is not known")
        return [Path(rule.path)]

    def _walk(
        self, root: str, before: Mapping[str, _Directory], now: float, found: dict[str, ListedFile]
    ) -> None:
        left = [root]
        while left:
            place = left.pop()
            directory = self._read(place, before.get(place, _Directory()), now)
            if directory is None:
                continue
            self._known[place] = directory
            found |= directory.files
            left += directory.directories
            self._rule.check_size(len(found) + len(self._known))

    def _read(self, place: str, known: _Directory, now: float) -> _Directory | None:
        """Return the directory as it is now; None if it has just gone."""
        try:
            modified = Path(place).stat().st_mtime
            if modified == known.modified and known.read_at - modified > _SETTLED_SECONDS:
                return known
            files: dict[str, ListedFile] = {}
            directories: list[str] = []
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir():
                        if self._rule.enters(entry.name):
                            directories.append(entry.path)
                    elif self._rule.takes(entry.name):
                        _note(entry, known.files, files)
        except FileNotFoundError:
            return None
        return _Directory(modified, now, files, directories)


def _note(entry: os.DirEntry[str], known: Mapping[str, ListedFile], files: dict[str, ListedFile]) -> None:
    """Note a file, unless it has just gone."""
    file = known.get(entry.path)
    if file is None or math.isnan(file.size):
        try:
            file = _describe(entry.stat())
        except FileNotFoundError:
            return
    files[entry.path] = file


def _describe(found: os.stat_result) -> ListedFile:
    return ListedFile.of(found.st_mtime, float(found.st_size))
