"""Traces on disk: Parquet files of the columns that `trace` documents."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.diagnose.memory import BYTES_PER_ROW, available_bytes, check_events
from penstock.diagnose.trace import Trace, from_table, to_table
from penstock.errors import BadInput


def read_trace(path: Path) -> Trace:
    """The trace in a Parquet file, or in all files of a directory."""
    try:
        _check_size(path)
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path}: is not a Parquet trace ({error})") from error
    return from_table(table)


def _check_size(path: Path) -> None:
    """Refuses a trace that could not even be read, before the attempt is made."""
    parts = [
        pq.ParquetFile(file).metadata
        for file in (sorted(path.glob("*.parquet")) if path.is_dir() else [path])
    ]
    rows = sum(part.num_rows for part in parts)
    check_events(rows, _seconds(parts), available_bytes(), BYTES_PER_ROW)


def _seconds(parts: list[pq.FileMetaData]) -> float:
    """From the first to the last event, as far as the files tell it without being read."""
    times: list[int] = []
    for part in parts:
        place = part.schema.names.index("time_us") if "time_us" in part.schema.names else -1
        groups = (part.row_group(number) for number in range(part.num_row_groups if place >= 0 else 0))
        for statistics in (group.column(place).statistics for group in groups):
            if statistics is not None and statistics.has_min_max:
                times += [int(statistics.min), int(statistics.max)]
    return (max(times) - min(times)) / 1e6 if times else 0.0


def write_trace(trace: Trace, path: Path) -> None:
    """Writes a trace as one Parquet file."""
    try:
        pq.write_table(to_table(trace), path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from error
