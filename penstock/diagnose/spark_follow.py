"""Follows event logs while they are written, as one Structured Streaming job with a state for each log."""

from __future__ import annotations

import json
import os
import pickle
import sys
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

from penstock.diagnose.event_log import wanted
from penstock.diagnose.followed_log import FollowedLog
from penstock.diagnose.log_files import find_logs
from penstock.diagnose.log_tail import grown, marks_at, tail_lines
from penstock.diagnose.spark_pipeline import SUMMARY_SCHEMA, summary_rows
from penstock.errors import PenstockError, SparkUnavailable
from penstock.spark_start import started

TAILS = "log string, sequence long, lines binary"
_TAILS = pa.schema([("log", pa.string()), ("sequence", pa.int64()), ("lines", pa.binary())])
_CHUNK = 4 << 20
COLUMNS = [column.split()[0] for column in SUMMARY_SCHEMA.split(", ")]
TRIGGER = "2 seconds"


class EventLogSource(DataSource):
    """The lines that the event logs at `path` have got since the last batch.

    The option `read` says what of them counts as read before the query starts: JSON, log → file → bytes.
    """

    @classmethod
    def name(cls) -> str:
        """How the source is called in `readStream.format`."""
        return "penstock-event-logs"

    def schema(self) -> str:
        """One row a piece of one log."""
        return TAILS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader of the tails."""
        return _TailReader(self.options["path"], json.loads(self.options.get("read", "{}")))


class _Tail(InputPartition):
    """What one log has got more, file by file."""

    def __init__(self, log: str, files: list[tuple[str, int, int]]) -> None:
        self.log = log
        self.files = files


class _TailReader(DataSourceStreamReader):
    """Offsets are the bytes of every file of every log."""

    def __init__(self, path: str, read: dict[str, dict[str, int]]) -> None:
        self._path = path
        self._read = read

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """What counts as read."""
        return self._read

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """What is there now; what has gone since is still known as read."""
        return {**(start or {}), **marks_at(Path(self._path))}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A task for each log that has grown."""
        tails = {log: grown(start.get(log, {}), marks) for log, marks in end.items()}
        return [_Tail(log, files) for log, files in tails.items() if files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The new lines that say something, in large pieces."""
        assert isinstance(partition, _Tail)
        for sequence, piece in enumerate(_pieces(_lines(partition))):
            yield pa.RecordBatch.from_pylist(
                [{"log": partition.log, "sequence": sequence, "lines": piece}], schema=_TAILS
            )


def _lines(tail: _Tail) -> Iterator[bytes]:
    for name, start, end in tail.files:
        yield from (line for line in tail_lines(Path(tail.log), name, start, end) if wanted(line))


def _pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
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
    spark: SparkSession, path: str, window_seconds: float = 10.0, finished: bool = True
) -> DataFrame:
    """A streaming DataFrame with the summaries of each window of each log at `path`, as soon as it is over.

    Beside the summaries of `log_summaries` a row `answer` holds a window's answer in words, and a row
    `ended` says that an application is over. Logs that are `finished` by now may be left out.
    """
    read = {} if finished else marks_at(Path(path), finished_only=True)
    return _summaries(spark, path, window_seconds, read)


def _summaries(
    spark: SparkSession, path: str, window_seconds: float, read: dict[str, dict[str, int]]
) -> DataFrame:
    spark.dataSource.register(EventLogSource)
    source = spark.readStream.format(EventLogSource.name()).option("path", path)
    tails = source.option("read", json.dumps(read)).load()
    return tails.groupBy("log").applyInPandasWithState(
        _advance(round(window_seconds * 1e6)),
        outputStructType=SUMMARY_SCHEMA,
        stateStructType="followed binary",
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )


def _advance(window_us: int) -> Callable[..., Iterator[pd.DataFrame]]:
    def advance(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        followed = pickle.loads(state.get[0]) if state.exists else FollowedLog(window_us)
        pieces = pd.concat(list(frames)).sort_values("sequence")["lines"]
        lines = (line for piece in pieces for line in bytes(piece).split(b"\n"))
        try:
            followed, told = followed.taking(lines)
        except PenstockError as error:
            yield _frame([(key[0], None, None, None, None, "error", str(error), None, None)])
            return
        application = (followed.log.application if followed.log else "") or key[0]
        rows = [row for summary, answer in told for row in _window_rows(application, summary, answer)]
        if followed.ended:
            rows.append((application, None, None, None, None, "ended", key[0], None, None))
            state.remove()
        else:
            state.update((pickle.dumps(followed),))
        yield _frame(rows)

    return advance


def _window_rows(application: str, summary: Any, answer: str) -> Iterator[tuple[Any, ...]]:
    where = (application, summary.start_us, summary.end_us, summary.length_us, summary.paths_log10)
    yield (*where, "answer", answer, None, None)
    yield from summary_rows(application, summary)


def _frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=COLUMNS)
    for name in ("start_us", "end_us", "critical_us"):
        frame[name] = frame[name].astype("Int64")
    return frame


def follow(path: Path, window_seconds: float, tell: Callable[[list[Any]], None]) -> None:
    """Tells the rows of every window of the logs at `path` until none of them is written any more."""
    # a log that is finished while Spark starts is one that was followed
    read = marks_at(path.absolute(), finished_only=True)
    try:
        spark = _session()
        try:
            _followed(_summaries(spark, str(path.absolute()), window_seconds, read), path, tell)
        finally:
            spark.stop()
    except (PySparkException, Py4JError, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise SparkUnavailable(f"{path} cannot be followed with Spark: {first}") from error


def _followed(summaries: DataFrame, path: Path, tell: Callable[[list[Any]], None]) -> None:
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


def _session() -> SparkSession:
    # workers need the packages of this Python, whichever one comes first on the path
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("penstock diagnose --follow")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        # Spark's own worker warns of pandas' future at every window, on the user's terminal
        "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return started(builder)
