"""The diagnosis of many applications as one PySpark job: a DataFrame of paths in, one of summaries out.

Workers read the files themselves: rows of a trace that go through the JVM cost several times the computation.
One bad file gives a row that says so and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.diagnose.activity_graph import GAP_THRESHOLD_US
from penstock.diagnose.event_log import read_log
from penstock.diagnose.log_files import find_logs
from penstock.diagnose.log_trace import trace_of_log
from penstock.diagnose.summary import Summary, window_summaries
from penstock.diagnose.trace import Trace, from_table
from penstock.diagnose.trace_files import read_trace
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
Reader = Callable[[str], tuple[str, Trace, int]]


def path_frame(spark: SparkSession, paths: Iterable[str], partitions: int | None = None) -> DataFrame:
    """A DataFrame of paths, spread so that every task gets its share of them."""
    found = [(path,) for path in paths]
    frame = spark.createDataFrame(found, "path string")
    # By range, because the few rows of such a frame would not spread evenly round robin.
    return frame.repartitionByRange(partitions or max(1, len(found)), "path")


def log_summaries(paths: DataFrame, window_seconds: float | None = None) -> DataFrame:
    """Summaries of the event logs whose paths the first column holds (files or rolling directories)."""
    return _summaries(paths, _read_log, window_seconds)


def trace_summaries(paths: DataFrame, window_seconds: float | None = None) -> DataFrame:
    """Summaries of the Parquet traces whose paths the first column holds, one application a file.

    Files that `layout.lay_out` wrote hold one window each: then applications and windows run in parallel.
    """
    return _summaries(paths, _read_trace, window_seconds)


def event_summaries(events: DataFrame, window_seconds: float | None = None) -> DataFrame:
    """Summaries of trace rows that are a DataFrame already, with a column `application` beside their own.

    A shuffle forgets the order of rows: where rows share an instant, a column `sequence` tells their order.
    """

    def compute(table: pa.Table) -> pa.Table:
        application = table.column("application")[0].as_py()
        if "sequence" in table.column_names:
            table = table.sort_by([("time_us", "ascending"), ("sequence", "ascending")])
        rows = trace_rows(application, from_table(table), GAP_THRESHOLD_US, window_seconds)
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
        application, trace, threshold = read(path)
        yield from trace_rows(application, trace, threshold, window_seconds)
    except PenstockError as error:
        yield (path, None, None, None, None, "error", str(error), None, None)


def trace_rows(
    application: str, trace: Trace, gap_threshold_us: int, window_seconds: float | None
) -> Iterator[Row]:
    """The summary rows of one application, window after window."""
    length = round(window_seconds * 1e6) if window_seconds else None
    for summary in window_summaries(trace, length, gap_threshold_us):
        yield from summary_rows(application, summary)


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


def _read_log(path: str) -> tuple[str, Trace, int]:
    log = read_log(find_logs(Path(path))[0].lines())
    return log.application or path, trace_of_log(log).trace, 0


def _read_trace(path: str) -> tuple[str, Trace, int]:
    folder = Path(path).parent.name
    application = folder.removeprefix(_APPLICATION) if folder.startswith(_APPLICATION) else Path(path).stem
    return application, read_trace(Path(path)), GAP_THRESHOLD_US
