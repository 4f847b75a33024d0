"""Finds event logs on disk and reads their lines: a single file, a rolling directory, a directory of many."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.diagnose.log_codec import CODECS, lines, plain
from penstock.errors import BadInput

_ROLLED = re.compile(r"^events_(\d+)_")
_STATUS = "appstatus_"


@dataclass(frozen=True, slots=True)
class LogFiles:
    """One application's log: its files in the order they were written."""

    path: Path
    files: tuple[Path, ...]
    in_progress: bool

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.files)

    def lines(self) -> Iterator[bytes]:
        """Every line of every file, decompressed."""
        for file in self.files:
            yield from file_lines(file)


def find_logs(path: Path) -> list[LogFiles]:
    """The logs at a path: the file or rolling directory itself, or all those directly inside a directory."""
    if not path.exists():
        raise BadInput(f"{path}: there is no such file or directory")
    if path.is_file():
        _check_packing(path)
        return [LogFiles(path, (path,), path.name.endswith(".inprogress"))]
    logs = _inside(path)
    if not logs:
        raise BadInput(f"{path}: holds no event log")
    return logs


def is_empty(path: Path) -> bool:
    """Whether this is a directory in which no log has begun yet."""
    return path.is_dir() and not _inside(path)


def _inside(directory: Path) -> list[LogFiles]:
    if rolled := _rolled(directory):
        return [rolled]
    inside = [entry for entry in sorted(directory.iterdir()) if not entry.name.startswith((".", _STATUS))]
    return [log for entry in inside for log in _entry(entry)]


def _check_packing(path: Path) -> None:
    """A history server hands out logs as zip archives."""
    if path.suffix == ".zip":
        raise BadInput(f"{path}: is an archive; unpack it, and give the event log that is inside")


def _entry(entry: Path) -> list[LogFiles]:
    if entry.is_dir():
        rolled = _rolled(entry)
        return [rolled] if rolled else []
    if entry.suffix in {".crc", ".parquet", ".zip"}:
        return []
    return [LogFiles(entry, (entry,), entry.name.endswith(".inprogress"))]


def _rolled(path: Path) -> LogFiles | None:
    """A rolling log, whose files are `events_<number>_<application>`; compaction leaves a later start."""
    found = [(int(match[1]), file) for file in path.iterdir() if (match := _ROLLED.match(file.name))]
    if not found:
        return None
    compacted = [number for number, file in found if file.name.endswith(".compact")]
    first = max(compacted, default=0)
    files = [(n, f) for n, f in found if n > first or (n == first and f.name.endswith(".compact"))]
    unfinished = any(file.name.endswith(".inprogress") for file in path.glob(f"{_STATUS}*"))
    return LogFiles(path, tuple(file for _, file in sorted(files)), unfinished)


def codec_name(file: Path) -> str:
    """What the name of a log file says of its compression; a plain log says nothing that is a codec."""
    return file.name.removesuffix(".inprogress").removesuffix(".compact").rpartition(".")[2]


def file_lines(file: Path) -> Iterator[bytes]:
    """The lines of one file, decompressed by what its name ends in."""
    try:
        with file.open("rb") as stream:
            yield from lines(CODECS.get(codec_name(file), plain)(stream))
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror or error})") from error
