"""Diagnose many applications in one PySpark job: a DataFrame of paths in, one of summaries out.

Workers read the files themselves: to pass the rows of a trace through the JVM costs several times the
computation. A bad file becomes a row with its error and does not stop the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.diagnose.log.files import find_logs
from penstock.diagnose.log.reader import read_application
from penstock.diagnose.path.parts import Part, analyse_log_parts, analyse_trace_parts
from penstock.diagnose.path.spans import Span, find_free_memory
from penstock.diagnose.path.summary import Summary, summarise_graph, summarise_trace
from penstock.diagnose.trace.events import from_table
from penstock.diagnose.trace.from_log import build_timelines
from penstock.errors import PenstockError

SUMMARY_SCHEMA = (
    "application string, start_us long, end_us long, critical_us long, paths_log10 double, "
    "summary string, name string, other string, participation double"
)
_TYPES = {"string": pa.string(), "long": pa.int64(), "double": pa.float64()}
_ARROW = pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, SUMMARY_SCHEMA.split(", "))])
SUMMARY_COLUMNS = _ARROW.names
_APPLICATION = "application="
TASKS_PER_SLOT = 4
MOST_PATHS_OF_TASK = 8
Row = tuple[Any, ...]
Reader = Callable[[str, Span], Iterator[Row]]


def path_frame(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    """Return a DataFrame of paths, spread evenly over tasks."""
    found = [(path,) for path in paths]
    frame = spark.createDataFrame(found, "path string")
    # by range: so few rows would not spread evenly round robin
    return frame.repartitionByRange(count_tasks(len(found), spark.sparkContext.defaultParallelism), "path")


def count_tasks(paths: int, slots: int) -> int:
    """Return how many tasks read these paths: a few for each slot, so that they end together.

    A task costs a tenth of a second beside its work. But if there are too few of them, executors that join
    later find nothing to do.
    """
    return max(1, min(paths, TASKS_PER_SLOT * slots), -(-paths // MOST_PATHS_OF_TASK))


def log_summaries(paths: DataFrame, window_seconds: float | None = None) -> DataFrame:
    """Summarise the event logs (files or rolling directories) whose paths are in the first column."""
    return _map_paths(paths, _read_log_rows, window_seconds)


def trace_summaries(paths: DataFrame, window_seconds: float | None = None) -> DataFrame:
    """Summarise the Parquet traces whose paths are in the first column, one application for each file."""
    return _map_paths(paths, _read_trace_rows, window_seconds)


def event_summaries(events: DataFrame, window_seconds: float | None = None) -> DataFrame:
    """Summarise the rows of traces that are in a DataFrame already, with a column `application`.

    A shuffle loses the order of rows: where rows share an instant, a column `sequence` must give their order.
    """

    def compute(table: pa.Table) -> pa.Table:
        application = table.column("application")[0].as_py()
        if "sequence" in table.column_names:
            table = table.sort_by([("time_us", "ascending"), ("sequence", "ascending")])
        summaries = summarise_trace(from_table(table), _choose_span(window_seconds).window_us)
        rows = (row for summary in summaries for row in list_summary_rows(application, summary))
        return pa.Table.from_batches([_to_batch(rows)], _ARROW)

    return events.groupBy("application").applyInArrow(compute, SUMMARY_SCHEMA)


def _map_paths(paths: DataFrame, read: Reader, window_seconds: float | None) -> DataFrame:
    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                yield _to_batch(_read_path(path, read, window_seconds))

    return paths.mapInArrow(compute, SUMMARY_SCHEMA)


def _read_path(path: str, read: Reader, window_seconds: float | None) -> Iterator[Row]:
    try:
        yield from read(path, _choose_span(window_seconds))
    except PenstockError as error:
        yield make_note(path, "error", str(error))


def _choose_span(window_seconds: float | None) -> Span:
    """Return the span of everything; the tasks of a host, at most one a core, share its free memory."""
    window = round(window_seconds * 1e6) if window_seconds else None
    return Span(window, memory=find_free_memory() // (os.cpu_count() or 1))


def make_note(application: str, kind: str, text: str) -> Row:
    """Return a row that says something of an application instead of a window."""
    return (application, None, None, None, None, kind, text, None, None)


def list_summary_rows(application: str, summary: Summary) -> Iterator[Row]:
    """Yield a row for each name in each summary of one window."""
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


def _to_batch(rows: Iterable[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(_ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _read_log_rows(path: str, span: Span) -> Iterator[Row]:
    log = read_application(find_logs(Path(path))[0])
    for rows in analyse_log_parts(
        build_timelines(log), span, partial(_summarise_part, log.application or path, span)
    ):
        yield from rows


def _read_trace_rows(path: str, span: Span) -> Iterator[Row]:
    folder = Path(path).parent.name
    application = folder.removeprefix(_APPLICATION) if folder.startswith(_APPLICATION) else Path(path).stem
    for rows in analyse_trace_parts(Path(path), span, partial(_summarise_part, application, span)):
        yield from rows


def _summarise_part(application: str, span: Span, part: Part) -> list[Row]:
    """Return the rows of one part, window after window."""
    summaries = summarise_graph(part.graph, span.window_us, part.start_us, part.end_us)
    return [row for summary in summaries for row in list_summary_rows(application, summary)]
