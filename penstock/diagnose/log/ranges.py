"""Read a large plain log in ranges of bytes, by several processes at once.

Each process reads the tasks of its range, nearly all of a log, into columns. The few other lines go back as
they are, and are read in order by one reader.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from penstock.diagnose.log.application import Column
from penstock.diagnose.log.codec import CHUNK, split_lines
from penstock.errors import BadInput

RANGE_BYTES = 16 << 20
LARGE_BYTES = 4 * RANGE_BYTES
"""A smaller file is read by one process: starting others would take longer."""

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LogPart:
    """A range of a log: the columns of its tasks, and the other lines with their numbers in the range."""

    lines: int
    latest: int
    columns: Mapping[str, Column]
    executors: tuple[str, ...]
    others: list[tuple[int, bytes]]
    warnings: Mapping[str, int]


class PartReader(Protocol):
    """A reader of lines whose work can be divided."""

    def __init__(self) -> None: ...

    def read_part(self, lines: Iterable[bytes]) -> LogPart:
        """Read a range of a log."""

    def take_part(self, part: LogPart) -> None:
        """Continue with a part that another reader has read."""


def count_processes() -> int:
    """Return how many processes may read at once: one for each core, where processes can be forked safely."""
    if "fork" not in multiprocessing.get_all_start_methods() or threading.active_count() > 1:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cut_ranges(file: Path, step: int = RANGE_BYTES) -> list[Range]:
    """Return ranges of about this many bytes, each of whole lines, that cover the file."""
    size, edges = file.stat().st_size, [0]
    with file.open("rb") as stream:
        while edges[-1] + step < size:
            stream.seek(edges[-1] + step - 1)
            while (piece := stream.readline(CHUNK)) and not piece.endswith(b"\n"):
                pass
            edges.append(min(stream.tell(), size))
    if edges[-1] < size:
        edges.append(size)
    return list(itertools.pairwise(edges))


def feed_in_parts(reader: PartReader, file: Path, ranges: list[Range], processes: int) -> None:
    """Read the ranges of a file in order, by this many processes."""
    read = partial(_read_range, type(reader), file)
    if processes <= 1:
        for part in map(read, ranges):
            reader.take_part(part)
        return
    try:
        with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
            for part in pool.map(read, ranges):
                reader.take_part(part)
    except BrokenProcessPool as error:
        raise BadInput(f"{file}: a process that read it was killed; memory may be short") from error


def _read_range(kind: type[PartReader], file: Path, bounds: Range) -> LogPart:
    with file.open("rb") as stream:
        stream.seek(bounds[0])
        chunks = iter(lambda: stream.read(min(CHUNK, bounds[1] - stream.tell())), b"")
        return kind().read_part(split_lines(chunks))
