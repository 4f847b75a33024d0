"""Find event logs on disk and read their lines, all of them or those added since the last look.

A log is a single file or a rolling directory; a directory may hold many. How far a log was read is a number
of bytes for each of its files. Those bytes never change while a file grows, so reading between two marks
gives the same lines again after a failure.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from penstock.diagnose.log.codec import (
    CHUNK,
    LONGEST_MAGIC,
    ByteStream,
    choose_codec,
    read_plain,
    split_lines,
)
from penstock.errors import BadInput

_ROLLED = re.compile(r"^events_(\d+)_")
_STATUS = "appstatus_"
_IN_PROGRESS = ".inprogress"
_COMPACT = ".compact"
_STEP = 1 << 16
# A vendor rolls logs to eventlog-<date>.gz; the newest part has no date.
_VENDOR_NEWEST = "eventlog"
# An application's start is among the first events: properties and executors may come before it.
_HEAD_LINES = 50
_STARTS = (b"SparkListenerApplicationStart", b"SparkListenerLogStart")

Marks = Mapping[str, int]


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

    def read_lines(self) -> Iterator[bytes]:
        """Yield every line of every file, decompressed."""
        for file in self.files:
            yield from read_file_lines(file)


def find_logs(path: Path) -> list[LogFiles]:
    """Return the log at a path, or the logs directly inside a directory."""
    if not path.exists():
        raise BadInput(f"{path}: there is no such file or directory")
    if path.is_file():
        if path.suffix == ".zip":
            raise _refuse_archive(path)
        return [_single(path)]
    logs = _find_inside(path)
    if not logs:
        raise BadInput(f"{path}: holds no event log")
    return logs


def has_no_log(path: Path) -> bool:
    """Return whether this is a directory without a log."""
    return path.is_dir() and not _find_inside(path)


def _single(file: Path) -> LogFiles:
    return LogFiles(file, (file,), file.name.endswith(_IN_PROGRESS))


def _find_inside(directory: Path) -> list[LogFiles]:
    if rolled := _find_rolled(directory):
        return [rolled]
    logs: list[LogFiles] = []
    single: list[Path] = []
    for entry in sorted(directory.iterdir()):
        if entry.name.startswith((".", _STATUS)):
            continue
        if entry.is_dir():
            rolled = _find_rolled(entry)
            logs += [rolled] if rolled else []
        elif entry.suffix not in {".crc", ".parquet", ".zip"}:
            single.append(entry)
    return sorted([*logs, *_join_parts(single)], key=lambda log: log.path)


def _join_parts(files: list[Path]) -> list[LogFiles]:
    """Return logs of these files; one that continues another is a part of it, not a log."""
    later = [file for file in files if len(files) > 1 and _continues_another(file)]
    first = [file for file in files if file not in later]
    parts = {file: [file] for file in first}
    for file in later:
        parts.setdefault(_choose_first(file, first), []).append(file)
    return [_join_files(sorted(held, key=_order_parts)) for held in parts.values()]


def _choose_first(file: Path, first: list[Path]) -> Path:
    """Return the file that this one continues: the only one, or the one with most of the same name."""
    starting = [one for one in first if _starts_application(one)]
    if len(starting) == 1:
        return starting[0]
    return max(
        (one for one in starting if file.name.startswith(one.name.partition(".")[0])),
        key=lambda one: len(one.name),
        default=file,
    )


def _join_files(files: list[Path]) -> LogFiles:
    return LogFiles(files[0], tuple(files), any(file.name.endswith(_IN_PROGRESS) for file in files))


def _order_parts(file: Path) -> tuple[bool, list[tuple[int, str]]]:
    """Order parts by the numbers in their names; the one that is still written has no date yet."""
    pieces = re.findall(r"(\d+)|(\D+)", file.name)
    return file.name == _VENDOR_NEWEST, [(int(number or -1), text) for number, text in pieces]


def _starts_application(file: Path) -> bool:
    return _look_at(file)[0]


def _continues_another(file: Path) -> bool:
    return _look_at(file)[1]


def _look_at(file: Path) -> tuple[bool, bool]:
    """Return whether a file starts an application, and whether it has events but no such start."""
    try:
        found = file.stat()
    except OSError:
        return False, False
    return _look_at_head(file, found.st_ino, min(found.st_size, CHUNK))


@lru_cache(maxsize=1 << 16)
def _look_at_head(file: Path, _inode: int, _size: int) -> tuple[bool, bool]:
    """Look at the first lines of a file, once until it has grown: a directory may be followed for days."""
    try:
        head = list(islice(read_file_lines(file), _HEAD_LINES))
    except BadInput:
        return False, False
    begins = any(start in line for line in head for start in _STARTS)
    continues = bool(head) and head[0].startswith(b'{"Event":') and not begins
    return any(_STARTS[0] in line for line in head), continues


def _find_rolled(path: Path) -> LogFiles | None:
    """Return a rolling log of files `events_<number>_<application>`; the last compacted file is its start."""
    found = [(int(match[1]), file) for file in path.iterdir() if (match := _ROLLED.match(file.name))]
    if not found:
        return None
    first = max((number for number, file in found if file.name.endswith(_COMPACT)), default=0)
    files = [(n, f) for n, f in found if n > first or (n == first and f.name.endswith(_COMPACT))]
    unfinished = any(file.name.endswith(_IN_PROGRESS) for file in path.glob(f"{_STATUS}*"))
    return LogFiles(path, tuple(file for _, file in sorted(files)), unfinished)


def _name_codec(file: Path) -> str:
    return file.name.removesuffix(_IN_PROGRESS).removesuffix(_COMPACT).rpartition(".")[2]


def read_file_lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of one file, decompressed as its content says."""
    try:
        with file.open("rb") as stream:
            codec = _open_codec(file, stream) or read_plain
            yield from split_lines(codec(stream))
    except OSError as error:
        raise _refuse(file, error) from error


def is_plain(file: Path) -> bool:
    """Return whether a file is not packed, so that it can be read from anywhere."""
    try:
        with file.open("rb") as stream:
            return _open_codec(file, stream) is None
    except OSError as error:
        raise _refuse(file, error) from error


def _open_codec(file: Path, stream: BinaryIO) -> Callable[[ByteStream], Iterator[bytes]] | None:
    """Return the reader of a packed file, None for a plain one; refuse an archive."""
    head = stream.read(LONGEST_MAGIC)
    stream.seek(0)
    if head.startswith(b"PK\x03\x04"):
        raise _refuse_archive(file)
    return choose_codec(head, _name_codec(file))


def _refuse_archive(file: Path) -> BadInput:
    # the history server hands out logs as archives
    return BadInput(f"{file}: is a zip archive; unpack it and name the event log inside")


def _refuse(file: Path, error: OSError) -> BadInput:
    return BadInput(f"{file}: cannot be read ({error.strerror or error})")


def mark_logs(path: Path, finished_only: bool = False) -> dict[str, dict[str, int]]:
    """Return the size of each file of each log at a path; a path without a log has no marks yet."""
    try:
        logs = find_logs(path)
    except BadInput:
        return {}
    return {
        str(_final_path(log.path)): dict(_measure_sizes(log.files))
        for log in logs
        if not (finished_only and log.in_progress)
    }


def _final_path(path: Path) -> Path:
    """Return the path that a log has once it is finished."""
    return path.with_name(path.name.removesuffix(_IN_PROGRESS))


def _measure_sizes(files: tuple[Path, ...]) -> Iterator[tuple[str, int]]:
    for file in files:
        try:
            yield _final_path(file).name, file.stat().st_size
        except FileNotFoundError:
            continue


def find_growth(start: Marks, end: Marks) -> list[tuple[str, int, int]]:
    """Return the files that have grown, in the order they were written: name, bytes read, bytes there."""
    is_rolled = any(_ROLLED.match(name) for name in start)
    return [
        (name, start.get(name, 0), size)
        for name, size in sorted(end.items(), key=lambda item: _order_parts(Path(item[0])))
        # a compacted file repeats events of the files that were read before
        if size > start.get(name, 0) and not (name.endswith(_COMPACT) and is_rolled)
    ]


def read_tail(log: Path, name: str, start: int, end: int) -> Iterator[bytes]:
    """Yield the lines that bytes `start` to `end` of a file completed."""
    folder = log if log.is_dir() else log.parent
    file = next((one for one in (folder / name, folder / (name + _IN_PROGRESS)) if one.is_file()), None)
    if file is None:
        # compaction removes files after it has copied their events
        return
    try:
        with file.open("rb") as stream:
            codec = _open_codec(file, stream)
            if codec is None:
                stream.seek(_find_line_start(stream, start))
                rest = iter(lambda: stream.read(min(_STEP, max(0, end - stream.tell()))), b"")
                yield from split_lines(rest, whole_only=True)
                return
            # a compressed file can be read from its beginning only
            before = split_lines(codec(_Prefix(stream, start)), whole_only=True) if start else ()
            known = sum(1 for _ in before)
            stream.seek(0)
            yield from islice(split_lines(codec(_Prefix(stream, end)), whole_only=True), known, None)
    except OSError as error:
        raise _refuse(file, error) from error


def _find_line_start(stream: io.BufferedReader, at: int) -> int:
    """Return where the line that holds byte `at` begins."""
    while at > 0:
        low = max(0, at - _STEP)
        stream.seek(low)
        found = stream.read(at - low).rfind(b"\n")
        if found >= 0:
            return low + found + 1
        at = low
    return 0


class _Prefix:
    """The first bytes of a file, as if it ended after them."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self._left = size

    def read(self, size: int, /) -> bytes:
        found = self._stream.read(min(size, self._left))
        self._left -= len(found)
        return found
