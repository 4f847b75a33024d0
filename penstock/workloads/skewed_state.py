"""Counts by key, kept by paced instances, with a key that becomes hot while the query runs.

Keys are chosen so that every bin has as many of them: without skew all bins are alike. Up to a record every
key comes as often as the others; from there on a share of all records goes to one key, so to one bin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from penstock.errors import BadInput
from penstock.workloads.source import FORMAT, LoadSource

_SCALE = 10_000
_CANDIDATES_A_KEY = 40

Count = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


@dataclass(frozen=True, slots=True)
class SkewedState:
    """One query: its load, its service time, and what becomes hot from which record on."""

    profile: str
    seconds_per_record: float
    share: float
    """Of the records, those that go to the hot key instead of being spread over all."""
    even_records: int = 0
    bins: int = 16
    keys_a_bin: int = 4
    source_partitions: int = 2
    max_records_per_batch: int | None = None
    start: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise BadInput(f"share is {self.share:g}, not between 0 and 1")
        if self.bins < 1 or self.keys_a_bin < 1:
            raise BadInput("a skewed state needs a bin and a key in it at least")

    def place_of(self, number: int) -> int:
        """The place in the list of keys of a record, in plain Python; the hot key is the first."""
        hot = number >= self.even_records and number * 7919 % _SCALE < round(self.share * _SCALE)
        return 0 if hot else number % (self.bins * self.keys_a_bin)

    def hot_bin_share(self) -> float:
        """What the bin of the hot key gets of all records."""
        return self.share + (1 - self.share) / self.bins

    def source_options(self) -> dict[str, str]:
        """Options of the load source."""
        options = {
            "content": "numbers",
            "profile": self.profile,
            "partitions": self.source_partitions,
            "start": self.start,
            "maxRecordsPerBatch": self.max_records_per_batch,
        }
        return {key: str(value) for key, value in options.items() if value is not None}


def keys_of(spark: SparkSession, workload: SkewedState) -> list[int]:
    """As many keys for each bin, in turns: place n belongs to the bin of place n mod bins; asks Spark."""
    candidates = spark.range(workload.bins * workload.keys_a_bin * _CANDIDATES_A_KEY)
    placed = candidates.select("id", sf.expr(f"pmod(hash(id), {workload.bins})").alias("bin")).collect()
    by_bin: dict[int, list[int]] = {number: [] for number in range(workload.bins)}
    for row in placed:
        by_bin[row["bin"]].append(row["id"])
    return [by_bin[bin_][turn] for turn in range(workload.keys_a_bin) for bin_ in range(workload.bins)]


def skewed_counts_of(spark: SparkSession, workload: SkewedState) -> DataFrame:
    """The streaming DataFrame (key, count); bin 0 is the hot one. Sets the session's number of bins."""
    spark.dataSource.register(LoadSource)
    spark.conf.set("spark.sql.shuffle.partitions", workload.bins)
    numbers = spark.readStream.format(FORMAT).options(**workload.source_options()).load()
    keys = sf.array(*[sf.lit(key).cast("long") for key in keys_of(spark, workload)])
    keyed = numbers.select(sf.get(keys, place_column(workload)).alias("key"))
    return keyed.groupBy("key").applyInPandasWithState(
        counted(workload.seconds_per_record),
        "key long, count long",
        "count long",
        "update",
        GroupStateTimeout.NoTimeout,
    )


def place_column(workload: SkewedState) -> Column:
    """`place_of` the column `number`."""
    number = sf.col("number")
    drawn = number * 7919 % _SCALE < round(workload.share * _SCALE)
    hot = (number >= workload.even_records) & drawn
    return sf.when(hot, 0).otherwise(number % (workload.bins * workload.keys_a_bin)).cast("int")


def counted(seconds_per_record: float) -> Count:
    """Serves the records of a key one after the other, and adds them to its count."""

    def count(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        records = sum(len(frame) for frame in frames)
        time.sleep(records * seconds_per_record)
        seen = records + (state.get[0] if state.exists else 0)
        state.update((seen,))
        yield pd.DataFrame({"key": [key[0]], "count": [seen]})

    return count


def start_skewed_state(
    spark: SparkSession,
    workload: SkewedState,
    checkpoint: str,
    *,
    trigger_seconds: float,
    name: str = "skewed",
    sink: str = "noop",
) -> StreamingQuery:
    """Start the query; sink `memory` keeps every update in a table of the query's name."""
    writer = skewed_counts_of(spark, workload).writeStream.queryName(name).outputMode("update").format(sink)
    timed = writer.trigger(processingTime=f"{round(trigger_seconds * 1000)} milliseconds")
    return timed.option("checkpointLocation", checkpoint).start()
