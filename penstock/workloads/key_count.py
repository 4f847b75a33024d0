"""Key-count, the workload of state: how often each of many keys was seen, kept in RocksDB.

Every key costs one row of state, so the size of the state is known: `keys` rows in `bins` state
partitions. With `preload` every key is counted once in the first batches, before the load's profile
begins, so that an experiment starts with its full state. Keys come from the record number by a hash
in Spark itself; the generator only counts, so that it never bounds the query.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import BadInput
from penstock.workloads.source import FORMAT, PRELOAD_PER_BATCH, LoadSource

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_MULTIPLIER, _MODULUS = 1_103_515_245, 2**31 - 1
"""A record's draw is (number · multiplier + seed) mod a prime: exact in 64 bits, in Spark as here."""

_SCALE = 10_000


@dataclass(frozen=True, slots=True)
class KeyCount:
    """One key-count: its load, its keys and the number of state partitions."""

    profile: str
    keys: int
    bins: int = 16
    preload: bool = True
    preload_per_batch: int = PRELOAD_PER_BATCH
    hot_share: float = 0.0
    """Share of the records that goes to the hot keys instead of being spread over all keys."""
    hot_keys: int = 1
    source_partitions: int = 2
    seed: int = 0
    start: float | None = None
    max_records: int | None = None
    max_records_per_batch: int | None = None

    def __post_init__(self) -> None:
        if not (1 <= self.hot_keys <= self.keys < _MODULUS and self.bins >= 1):
            raise BadInput(f"a key-count needs 1 <= hot_keys <= keys < {_MODULUS} and at least one bin")
        if not 0 <= self.hot_share <= 1:
            raise BadInput(f"hot_share is {self.hot_share:g}, not between 0 and 1")

    @property
    def preloaded(self) -> int:
        """Records before the profile begins: one a key, or none."""
        return self.keys if self.preload else 0

    def source_options(self) -> dict[str, str]:
        """Options of the load source; `max_records` counts without the preload."""
        most = None if self.max_records is None else self.max_records + self.preloaded
        options = {
            "content": "numbers",
            "profile": self.profile,
            "partitions": self.source_partitions,
            "preload": self.preloaded or None,
            "preloadPerBatch": self.preload_per_batch,
            "start": self.start,
            "maxRecords": most,
            "maxRecordsPerBatch": self.max_records_per_batch,
        }
        return {key: str(value) for key, value in options.items() if value is not None}

    def key_of(self, number: int) -> int:
        """The key of a record, in plain Python: the reference for `key_column`."""
        if number < self.preloaded:
            return number
        draw = (number % _MODULUS * _MULTIPLIER + self.seed) % _MODULUS
        hot = number * 7919 % _SCALE < round(self.hot_share * _SCALE)
        return draw % (self.hot_keys if hot else self.keys)

    def counts(self, records: int) -> Counter[int]:
        """The reference answer after so many records, preload included."""
        return Counter(self.key_of(number) for number in range(records))


def key_counts_of(spark: SparkSession, workload: KeyCount) -> DataFrame:
    """The streaming DataFrame (key, count); sets the session's state store and number of bins."""
    spark.dataSource.register(LoadSource)
    spark.conf.set("spark.sql.shuffle.partitions", workload.bins)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    numbers = spark.readStream.format(FORMAT).options(**workload.source_options()).load()
    return numbers.select(key_column(workload).alias("key")).groupBy("key").count()


def key_column(workload: KeyCount) -> Column:
    """The key of the column `number`."""
    number = sf.col("number")
    draw = (number % _MODULUS * _MULTIPLIER + workload.seed) % _MODULUS
    hot = number * 7919 % _SCALE < round(workload.hot_share * _SCALE)
    drawn = sf.when(hot, draw % workload.hot_keys).otherwise(draw % workload.keys)
    return sf.when(number < workload.preloaded, number).otherwise(drawn)


def start_key_count(
    spark: SparkSession,
    workload: KeyCount,
    checkpoint: str,
    *,
    trigger_seconds: float,
    name: str = "key-count",
    sink: str = "noop",
) -> StreamingQuery:
    """Start the query; sink `memory` keeps every update in a table of the query's name."""
    writer = key_counts_of(spark, workload).writeStream.queryName(name).outputMode("update").format(sink)
    timed = writer.trigger(processingTime=f"{round(trigger_seconds * 1000)} milliseconds")
    return timed.option("checkpointLocation", checkpoint).start()
