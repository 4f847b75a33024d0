"""What was written to an event log since it was last looked at: whole lines only, of files that grow.

How far a log was read is a number of bytes for each of its files, as they lie on the disk. What those bytes
say never changes while a file grows, so reading between two marks gives the same lines again after a failure.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from penstock.diagnose.log_codec import CODECS
from penstock.diagnose.log_files import codec_name, find_logs
from penstock.errors import BadInput

Marks = Mapping[str, int]
_IN_PROGRESS = ".inprogress"
_COMPACT = ".compact"
_NUMBER = re.compile(r"^events_(\d+)_")
_STEP = 1 << 16


def marks_at(path: Path, finished_only: bool = False) -> dict[str, dict[str, int]]:
    """For each log at a path the bytes of its files; a path without a log may get one later."""
    try:
        logs = find_logs(path)
    except BadInput:
        return {}
    return {
        str(plain_path(log.path)): dict(_sizes(log.files))
        for log in logs
        if not (finished_only and log.in_progress)
    }


def plain_path(path: Path) -> Path:
    """The path under which a log is known while it grows and afterwards."""
    return path.with_name(path.name.removesuffix(_IN_PROGRESS))


def _sizes(files: tuple[Path, ...]) -> Iterator[tuple[str, int]]:
    for file in files:
        try:
            yield plain_path(file).name, file.stat().st_size
        except FileNotFoundError:
            continue


def grown(start: Marks, end: Marks) -> list[tuple[str, int, int]]:
    """Files with more bytes than before, in the order they were written: name, bytes read, bytes there."""
    known = [int(found[1]) for name in start if (found := _NUMBER.match(name))]
    return [
        (name, start.get(name, 0), size)
        for name, size in sorted(end.items(), key=lambda item: _order(item[0]))
        if size > start.get(name, 0) and not (name.endswith(_COMPACT) and known)
    ]


def _order(name: str) -> tuple[int, str]:
    found = _NUMBER.match(name)
    return int(found[1]) if found else 0, name


def tail_lines(log: Path, name: str, start: int, end: int) -> Iterator[bytes]:
    """The lines that were completed by the bytes of this file from `start` to `end`."""
    folder = log if log.is_dir() else log.parent
    file = next((one for one in (folder / name, folder / (name + _IN_PROGRESS)) if one.is_file()), None)
    if file is None:
        # Compaction removes files whose events it has taken over.
        return
    try:
        codec = CODECS.get(codec_name(file))
        if codec is None:
            yield from _plain_tail(file, start, end)
            return
        # What a compressed prefix says can only be had from its beginning.
        with file.open("rb") as stream:
            known = sum(1 for _ in _whole(codec(_Prefix(stream, start)))) if start else 0
            stream.seek(0)
            yield from islice(_whole(codec(_Prefix(stream, end))), known, None)
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror or error})") from error


def _plain_tail(file: Path, start: int, end: int) -> Iterator[bytes]:
    with file.open("rb") as stream:
        stream.seek(_line_start(stream, start))
        yield from _whole(iter(lambda: stream.read(min(_STEP, max(0, end - stream.tell()))), b""))


def _line_start(stream: io.BufferedReader, at: int) -> int:
    """Where the line begins that byte `at` belongs to."""
    while at > 0:
        low = max(0, at - _STEP)
        stream.seek(low)
        found = stream.read(at - low).rfind(b"\n")
        if found >= 0:
            return low + found + 1
        at = low
    return 0


class _Prefix:
    """The first bytes of a file, as if it ended behind them."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self._left = size

    def read(self, size: int, /) -> bytes:
        """The next bytes, fewer at the end."""
        found = self._stream.read(min(size, self._left))
        self._left -= len(found)
        return found


def _whole(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Lines that have their end; what comes behind the last one is left for later."""
    rest = b""
    for chunk in chunks:
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()
        yield from parts
