"""Four kinds of stateful queries over the same files, whose whole output can be compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock_lab.workloads.state_stores import HDFS_STATE, ROCKSDB_STATE

BATCHES, ROWS, KEYS = 10, 60, 11
SCHEMA = "key string, number long, at timestamp"
COUNTED = StructType([StructField("key", StringType()), StructField("seen", LongType())])


def write_files(spark: SparkSession, directory: Path) -> None:
    """One file a batch, in an order that modification times make plain."""
    directory.mkdir()
    for batch in range(BATCHES):
        numbers = range(batch * ROWS, (batch + 1) * ROWS)
        lines = [f"k{n * n % KEYS},{n},2026-01-01 00:{batch:02d}:{n % 60:02d}" for n in numbers]
        file = directory / f"{batch:03d}.csv"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.utime(file, (1_700_000_000 + batch, 1_700_000_000 + batch))


def counts(events: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(sf.count("*").alias("rows"), sf.sum("number").alias("sum"))


def joined(events: DataFrame) -> DataFrame:
    left = events.where("number % 2 = 0").select(
        sf.col("key").alias("left"), sf.col("number").alias("a"), sf.col("at").alias("left_at")
    )
    right = events.where("number % 2 = 1").select(
        sf.col("key").alias("right"), sf.col("number").alias("b"), sf.col("at").alias("right_at")
    )
    near = "left = right and left_at <= right_at and right_at <= left_at + interval 8 seconds"
    return left.withWatermark("left_at", "30 seconds").join(
        right.withWatermark("right_at", "30 seconds"), sf.expr(near)
    )


def sessions(events: DataFrame) -> DataFrame:
    quiet = sf.session_window("at", "5 seconds")
    return events.withWatermark("at", "20 seconds").groupBy(quiet, "key").count()


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
    "joined": (joined, "append", ROCKSDB_STATE),
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
