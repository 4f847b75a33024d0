"""Spark's own log of a file source: which files each batch took, and when they were written (pure).

`<checkpoint>/sources/N` has one file for each time that new files were found: `7` has the files of entry 7,
and every tenth or so is `9.compact`, which has all entries up to 9. Offsets in reports count entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson

from penstock.errors import BadMetrics

_NAME = re.compile(r"^(\d+)(\.compact)?$")
_VERSIONS = {"v1"}
_LOCAL = re.compile(r"^file:/+")


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file that a batch took; `entry` is the number under which the log has it."""

    path: str
    modified: float
    entry: int


@dataclass(frozen=True, slots=True)
class LogName:
    """One file of the log."""

    name: str
    entry: int
    compact: bool


def plain_path(url: str) -> str:
    """Return a path as Spark writes it in the form that a listing has: local ones begin with one slash."""
    return _LOCAL.sub("/", unquote(url))


def choose_unread(names: Iterable[str], after: int) -> list[LogName]:
    """Return the files of the log to read for the entries after this one, oldest first.

    Spark removes old files once a compact one has their entries. Where the next entry has gone like that, the
    newest compact file stands for it.
    """
    found = (_NAME.match(name) for name in names)
    listed = [LogName(one.group(), int(one.group(1)), one.group(2) is not None) for one in found if one]
    newer = {one.entry: one for one in sorted(listed, key=lambda one: one.compact) if one.entry > after}
    compact = max((entry for entry, one in newer.items() if one.compact), default=-1)
    if after < 0 or after + 1 not in newer:
        newer = {entry: one for entry, one in newer.items() if entry >= compact}
    return [newer[entry] for entry in sorted(newer)]


def parse_log(text: str, cut_off: bool = False) -> list[LoggedFile]:
    """Read a file of the log; `cut_off` says that its beginning is missing, so the first line is a part."""
    lines = text.splitlines()
    if not cut_off and (not lines or lines[0] not in _VERSIONS):
        found = repr(lines[0][:20]) if lines else "nothing"
        raise BadMetrics(f"it begins with {found}, not v1: it is of another version of Spark, or no log")
    return [_read_line(line) for line in lines[1:] if line]


def _read_line(line: str) -> LoggedFile:
    try:
        fields: dict[str, Any] = orjson.loads(line)
        return LoggedFile(
            plain_path(str(fields["path"])), int(fields["timestamp"]) / 1000, int(fields["batchId"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadMetrics(f"a line cannot be read: {error!r}") from error


def is_hidden(name: str) -> bool:
    """Whether Spark leaves a file or directory of this name out."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")
