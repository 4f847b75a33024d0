"""Four kinds of stateful queries over the same files, and the rows of each, computed in plain Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock_lab.workloads.state_stores import HDFS_STATE, ROCKSDB_STATE

BATCHES, ROWS, KEYS = 8, 60, 11
FIRST = datetime(2026, 1, 1)
NEAR, QUIET, LATE = 8, 5, 20
"""Seconds: between the rows of a pair, without a row until a session ends, and that rows may be late."""
SCHEMA = "key string, number long, at timestamp"
COUNTED = StructType([StructField("key", StringType()), StructField("seen", LongType())])


def write_files(spark: SparkSession, directory: Path) -> None:
    """One file a batch, in an order that modification times make plain."""
    directory.mkdir()
    for batch in range(BATCHES):
        numbers = range(batch * ROWS, (batch + 1) * ROWS)
        lines = [f"{key_of(n)},{n},{moment(n)}" for n in numbers]
        file = directory / f"{batch:03d}.csv"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.utime(file, (1_700_000_000 + batch, 1_700_000_000 + batch))


def key_of(number: int) -> str:
    return f"k{number * number % KEYS}"


def moment(number: int) -> datetime:
    """Each row is a second after the one before, so a batch holds a minute."""
    return FIRST + timedelta(seconds=number)


def counts(events: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(sf.count("*").alias("rows"), sf.sum("number").alias("sum"))


def joined(events: DataFrame) -> DataFrame:
    left = events.where("number % 2 = 0").select(
        sf.col("key").alias("left"), sf.col("number").alias("a"), sf.col("at").alias("left_at")
    )
    right = events.where("number % 2 = 1").select(
        sf.col("key").alias("right"), sf.col("number").alias("b"), sf.col("at").alias("right_at")
    )
    near = f"left = right and left_at <= right_at and right_at <= left_at + interval {NEAR} seconds"
    return left.withWatermark("left_at", "30 seconds").join(
        right.withWatermark("right_at", "30 seconds"), sf.expr(near)
    )


def sessions(events: DataFrame) -> DataFrame:
    quiet = sf.session_window("at", f"{QUIET} seconds")
    return events.withWatermark("at", f"{LATE} seconds").groupBy(quiet, "key").count()


def transformed(events: DataFrame) -> DataFrame:
    # a class of its own in here: one of this module would be looked for on executors, which have no tests
    class Running(StatefulProcessor):
        """Counts the rows of each key."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.count = handle.getValueState("count", StructType([StructField("seen", LongType())]))

        def handleInputRows(  # noqa: N802
            self, key: Any, rows: Iterator[pd.DataFrame], _: Any
        ) -> Iterator[pd.DataFrame]:
            before = self.count.get()[0] if self.count.exists() else 0
            seen = before + sum(len(frame) for frame in rows)
            self.count.update((seen,))
            yield pd.DataFrame({"key": [key[0]], "seen": [seen]})

        def close(self) -> None:
            pass

    return events.groupBy("key").transformWithStateInPandas(Running(), COUNTED, "Update", "None")


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str, str]] = {
    "transformed": (transformed, "update", ROCKSDB_STATE),
    "counts": (counts, "update", ROCKSDB_STATE),
    "joined": (joined, "append", HDFS_STATE),
    "sessions": (sessions, "append", HDFS_STATE),
}
"""Name → how the output is made, its mode, and the kind of state store."""


def start(
    spark: SparkSession,
    name: str,
    files: Path,
    place: Path,
    rows: list[Row],
    before: Callable[[int], object] = lambda batch: None,
) -> StreamingQuery:
    """Run a query over the files, a file a batch; every row that it puts out is added to `rows`.

    `before` is called with the number of each batch, which waits for its return.
    """
    make, mode, provider = QUERIES[name]
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).csv(str(files))

    def keep(frame: DataFrame, batch: int) -> None:
        before(batch)
        rows.extend(Row(batch=batch, **row.asDict()) for row in frame.collect())

    writer = make(events).writeStream.queryName(name).outputMode(mode).foreachBatch(keep)
    return writer.option("checkpointLocation", str(place / name)).trigger(processingTime="1 second").start()


def expected_rows(name: str) -> list[Row]:
    """Return all rows that a query puts out over the files, whatever happens to its state meanwhile."""
    return list(EXPECTED[name]())


def _expected_counts() -> Iterator[Row]:
    rows = dict.fromkeys(map(key_of, range(KEYS)), 0)
    sums = dict(rows)
    for batch in range(BATCHES):
        for number in range(batch * ROWS, (batch + 1) * ROWS):
            rows[key_of(number)] += 1
            sums[key_of(number)] += number
        yield from (Row(batch=batch, key=key, rows=rows[key], sum=sums[key]) for key in rows)


def _expected_transformed() -> Iterator[Row]:
    return (Row(batch=row.batch, key=row.key, seen=row.rows) for row in _expected_counts())


def _expected_joined() -> Iterator[Row]:
    """A pair is there in the batch of its later row."""
    for left in range(0, BATCHES * ROWS, 2):
        for right in range(left + 1, min(left + NEAR + 1, BATCHES * ROWS), 2):
            if key_of(left) == key_of(right):
                yield Row(
                    batch=right // ROWS,
                    left=key_of(left),
                    a=left,
                    left_at=moment(left),
                    right=key_of(right),
                    b=right,
                    right_at=moment(right),
                )


def _expected_sessions() -> Iterator[Row]:
    """A session is there in the first batch whose watermark, that of the batches before, has passed it."""
    numbers = range(BATCHES * ROWS)
    for key in sorted({key_of(number) for number in numbers}):
        mine = [number for number in numbers if key_of(number) == key]
        starts = [n for before, n in zip([-QUIET - 1, *mine], mine, strict=False) if n - before > QUIET]
        for start, following in zip(starts, [*starts[1:], BATCHES * ROWS], strict=True):
            members = [number for number in mine if start <= number < following]
            end = members[-1] + QUIET
            batch = next(batch for batch in range(2 * BATCHES) if batch * ROWS - 1 - LATE >= end)
            if batch < BATCHES:
                window = Row(start=moment(start), end=moment(end))
                yield Row(batch=batch, session_window=window, key=key, count=len(members))


EXPECTED: dict[str, Callable[[], Iterator[Row]]] = {
    "transformed": _expected_transformed,
    "counts": _expected_counts,
    "joined": _expected_joined,
    "sessions": _expected_sessions,
}
