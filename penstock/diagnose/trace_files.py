"""Traces on disk: Parquet files of the columns that `trace` documents."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.diagnose.trace import Trace, from_table, to_table
from penstock.errors import BadInput


def read_trace(path: Path) -> Trace:
    """The trace in a Parquet file, or in all files of a directory."""
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path}: is not a Parquet trace ({error})") from error
    return from_table(table)


def write_trace(trace: Trace, path: Path) -> None:
    """Writes a trace as one Parquet file."""
    try:
        pq.write_table(to_table(trace), path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from error
