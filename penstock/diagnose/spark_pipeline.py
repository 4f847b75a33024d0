"""The diagnosis of many applications as one PySpark job: a DataFrame of paths in, one of summaries out.

Workers read the files themselves: rows of a trace that go through the JVM cost several times the computation.
One bad file gives a row that says so and does not stop the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.diagnose.density import Part, Span
from penstock.diagnose.event_log import read_application
from penstock.diagnose.log_files import find_logs
from penstock.diagnose.log_parts import log_parts
from penstock.diagnose.log_trace import log_timelines
from penstock.diagnose.memory import available_bytes
from penstock.diagnose.summary import Summary, graph_summaries, window_summaries
from penstock.diagnose.trace import from_table
from penstock.diagnose.trace_parts import trace_parts
from penstock.errors import PenstockError

SUMMARY_SCHEMA = (
    "application string, start_us long, end_us long, critical_us long, paths_log10 double, "
    "summary string, name string, other string, participation double"
)
_ARROW = pa.schema(
    [
        ("application", pa.string()),
        ("start_us", pa.int64()),
        ("end_us", pa.int64()),
        ("critical_us", pa.int64()),
        ("paths_log10", pa.float64()),
        ("summary", pa.string()),
        ("name", pa.string()),
        ("other", pa.string()),
        ("participation", pa.float64()),
    ]
)
_APPLICATION = "application="
Row = tuple[Any, ...]
Reader = Callable[[str, Span], Iterator[Row]]


def path_frame(spark: SparkSession, paths: Iterable[str], partitions: int | None = None) -> DataFrame:
    """A DataFrame of paths, spread so that every task gets its share of them."""
    found = [(path,) for path in paths]
    frame = spark.createDataFrame(found, "path string")
    # By range, because the few rows of such a frame would not spread evenly round robin.
    return frame.repartitionByRange(partitions or max(1, len(found)), "path")


def log_summaries(paths: DataFrame, window_seconds: float | None = None) -> DataFrame:
    """Summaries of the event logs whose paths the first column holds (files or rolling directories)."""
    return _summaries(paths, _log_rows, window_seconds)


def trace_summaries(paths: DataFrame, window_seconds: float | None = None) -> DataFrame:
    """Summaries of the Parquet traces whose paths the first column holds, one application a file.

    Files that `layout.lay_out` wrote hold one window each: then applications and windows run in parallel.
    """
    return _summaries(paths, _trace_rows, window_seconds)


def event_summaries(events: DataFrame, window_seconds: float | None = None) -> DataFrame:
    """Summaries of trace rows that are a DataFrame already, with a column `application` beside their own.

    A shuffle forgets the order of rows: where rows share an instant, a column `sequence` tells their order.
    """

    def compute(table: pa.Table) -> pa.Table:
        application = table.column("application")[0].as_py()
        if "sequence" in table.column_names:
            table = table.sort_by([("time_us", "ascending"), ("sequence", "ascending")])
        summaries = window_summaries(from_table(table), _span(window_seconds).window_us)
        rows = (row for summary in summaries for row in summary_rows(application, summary))
        return pa.Table.from_batches([_batch(rows)], _ARROW)

    return events.groupBy("application").applyInArrow(compute, SUMMARY_SCHEMA)


def _summaries(paths: DataFrame, read: Reader, window_seconds: float | None) -> DataFrame:
    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                yield _batch(_path_rows(path, read, window_seconds))

    return paths.mapInArrow(compute, SUMMARY_SCHEMA)


def _path_rows(path: str, read: Reader, window_seconds: float | None) -> Iterator[Row]:
    try:
        yield from read(path, _span(window_seconds))
    except PenstockError as error:
        yield (path, None, None, None, None, "error", str(error), None, None)


def _span(window_seconds: float | None) -> Span:
    """Everything, in such windows; the tasks of a host, at most one a core, share what memory it has free."""
    window = round(window_seconds * 1e6) if window_seconds else None
    return Span(window, memory=available_bytes() // (os.cpu_count() or 1))


def summary_rows(application: str, summary: Summary) -> Iterator[Row]:
    """One row for each name of each summary of one window."""
    where = (application, summary.start_us, summary.end_us, summary.length_us, summary.paths_log10)
    for kind, values in (
        ("activity", summary.activity),
        ("worker", summary.worker),
        ("operator", summary.operator),
    ):
        for name, share in values.items():
            yield (*where, kind, name, None, share)
    for source, target, share in summary.communication:
        yield (*where, "communication", source, target, share)


def _batch(rows: Iterable[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(_ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _log_rows(path: str, span: Span) -> Iterator[Row]:
    log = read_application(find_logs(Path(path))[0])
    for rows in log_parts(log_timelines(log), span, partial(_part_rows, log.application or path, span)):
        yield from rows


def _trace_rows(path: str, span: Span) -> Iterator[Row]:
    folder = Path(path).parent.name
    application = folder.removeprefix(_APPLICATION) if folder.startswith(_APPLICATION) else Path(path).stem
    for rows in trace_parts(Path(path), span, partial(_part_rows, application, span)):
        yield from rows


def _part_rows(application: str, span: Span, part: Part) -> list[Row]:
    """The summary rows of one part, window after window."""
    summaries = graph_summaries(part.graph, span.window_us, part.start_us, part.end_us)
    return [row for summary in summaries for row in summary_rows(application, summary)]
