"""Traces on disk: Parquet files of the columns that `trace` documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.diagnose.trace import Trace, from_table, to_table
from penstock.errors import BadInput

_LARGE_BYTES = 200_000_000


@contextmanager
def refused(path: Path) -> Iterator[None]:
    """Says of what cannot be read as Parquet which file it is."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
        raise BadInput(f"{path}: is not a Parquet trace ({error})") from error


def trace_files(path: Path) -> list[Path]:
    """The file, or all Parquet files of a directory."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


def read_trace(path: Path) -> Trace:
    """The trace in a Parquet file, or in all files of a directory."""
    with refused(path):
        table = pq.read_table(path)
    trace, size = from_table(table), table.nbytes
    del table
    # Its pool would keep the memory for another table; giving back what is small costs more than it brings.
    if size > _LARGE_BYTES:
        pa.default_memory_pool().release_unused()
    return trace


def write_trace(trace: Trace, path: Path) -> None:
    """Writes a trace as one Parquet file."""
    try:
        pq.write_table(to_table(trace), path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from error
