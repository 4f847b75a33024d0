"""Follow event logs while they are written, in one Structured Streaming job with a state for each log."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import StructType

from penstock.diagnose.follow import FollowedLog
from penstock.diagnose.log.files import find_growth, find_logs, mark_logs, read_tail
from penstock.diagnose.log.reader import is_wanted
from penstock.diagnose.spark_pipeline import SUMMARY_COLUMNS, SUMMARY_SCHEMA, list_summary_rows, make_note
from penstock.errors import PenstockError, SparkUnavailable

TAILS = "log string, sequence long, lines binary"
_TAILS = pa.schema([("log", pa.string()), ("sequence", pa.int64()), ("lines", pa.binary())])
_CHUNK = 4 << 20

TRIGGER = "2 seconds"


class EventLogSource(DataSource):
    """A streaming source of the lines that were added to the event logs at `path`.

    The option `read` has the bytes that count as read before the query starts: JSON, log → file → bytes.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `readStream.format`."""
        return "penstock-event-logs"

    def schema(self) -> str:
        """Return the columns: a row is a piece of one log."""
        return TAILS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of the added lines."""
        return _TailReader(self.options["path"], json.loads(self.options.get("read", "{}")))


class _Tail(InputPartition):
    """The bytes that were added to one log, file by file."""

    def __init__(self, log: str, files: list[tuple[str, int, int]]) -> None:
        self.log = log
        self.files = files


class _TailReader(DataSourceStreamReader):
    """A reader whose offsets are the bytes of every file of every log."""

    def __init__(self, path: str, read: dict[str, dict[str, int]]) -> None:
        self._path = path
        self._read = read

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the bytes that count as read."""
        return self._read

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the bytes that are there now; logs that were removed still count as read."""
        return {**(start or {}), **mark_logs(Path(self._path))}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a task for each log that has grown."""
        tails = {log: find_growth(start.get(log, {}), marks) for log, marks in end.items()}
        return [_Tail(log, files) for log, files in tails.items() if files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the added lines that matter, in large pieces."""
        assert isinstance(partition, _Tail)
        for sequence, piece in enumerate(_join_pieces(_read_wanted_lines(partition))):
            yield pa.RecordBatch.from_pylist(
                [{"log": partition.log, "sequence": sequence, "lines": piece}], schema=_TAILS
            )


def _read_wanted_lines(tail: _Tail) -> Iterator[bytes]:
    for name, start, end in tail.files:
        yield from (line for line in read_tail(Path(tail.log), name, start, end) if is_wanted(line))


def _join_pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _CHUNK:
            yield b"\n".join(held)
            held, size = [], 0
    if held:
        yield b"\n".join(held)


def follow_summaries(
    spark: SparkSession,
    path: str,
    window_seconds: float = 10.0,
    read: dict[str, dict[str, int]] | None = None,
) -> DataFrame:
    """Return a streaming DataFrame with the summaries of each window of each log at `path` as it completes.

    Beside the summaries of `log_summaries`, a row `answer` has a window's answer in words, and a row `ended`
    says that an application has ended. `read` has what counts as read already, as `mark_logs` returns it.
    """
    spark.dataSource.register(EventLogSource)
    source = spark.readStream.format(EventLogSource.name()).option("path", path)
    tails = source.option("read", json.dumps(read or {})).load()
    return tails.groupBy("log").applyInPandasWithState(
        _make_advance(round(window_seconds * 1e6)),
        outputStructType=SUMMARY_SCHEMA,
        stateStructType="followed binary",
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )


def _make_advance(window_us: int) -> Callable[..., Iterator[pd.DataFrame]]:
    def advance(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        followed = pickle.loads(state.get[0]) if state.exists else FollowedLog(window_us)
        pieces = pd.concat(list(frames)).sort_values("sequence")["lines"]
        lines = (line for piece in pieces for line in bytes(piece).split(b"\n"))
        try:
            followed, windows = followed.take_lines(lines)
        except PenstockError as error:
            yield _to_frame([make_note(key[0], "error", str(error))])
            return
        application = (followed.log.application if followed.log else "") or key[0]
        rows = [row for summary, answer in windows for row in _list_window_rows(application, summary, answer)]
        if followed.ended:
            rows.append(make_note(application, "ended", key[0]))
            state.remove()
        else:
            state.update((pickle.dumps(followed),))
        yield _to_frame(rows)

    return advance


def _list_window_rows(application: str, summary: Any, answer: str) -> Iterator[tuple[Any, ...]]:
    where = (application, summary.start_us, summary.end_us, summary.length_us, summary.paths_log10)
    yield (*where, "answer", answer, None, None)
    yield from list_summary_rows(application, summary)


def _to_frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=SUMMARY_COLUMNS)
    for name in ("start_us", "end_us", "critical_us"):
        frame[name] = frame[name].astype("Int64")
    return frame


def follow_logs(
    start: Callable[[], SparkSession], path: Path, window_seconds: float, tell: Callable[[list[Any]], None]
) -> None:
    """Pass the rows of every window of the logs at `path` to `tell` until all logs are finished.

    `start` returns the Spark session, which is stopped at the end.
    """
    # before Spark starts: a log that is finished meanwhile is followed too
    read = mark_logs(path.absolute(), finished_only=True)
    try:
        spark = start()
        try:
            _run_query(follow_summaries(spark, str(path.absolute()), window_seconds, read), path, tell)
        finally:
            spark.stop()
    except (PySparkException, Py4JError, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise SparkUnavailable(f"{path} cannot be followed with Spark: {first}") from error


def _run_query(summaries: DataFrame, path: Path, tell: Callable[[list[Any]], None]) -> None:
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            summaries.writeStream.foreachBatch(lambda frame, _: tell(frame.collect()))
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime=TRIGGER)
            .start()
        )
        try:
            while any(log.in_progress for log in find_logs(path)) and not query.awaitTermination(1):
                pass
            query.processAllAvailable()
        finally:
            query.stop()
