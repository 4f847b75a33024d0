"""Counts by key: the key-count, with many keys in RocksDB, and a state with a key that becomes hot.

Every key of the key-count costs one row of state, so the size of the state is known: `keys` rows in `bins`
state partitions. With `preload` every key is counted once in the first batches, before the load's profile
begins, so that an experiment starts with its full state. Keys come from the record number by a hash
in Spark itself; the generator only counts, so that it never bounds the query.

The skewed state is kept by paced instances. Every bin has as many keys. All keys come equally often in the
first `even_records`; after those a share of all records goes to one key, and so to one bin.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from penstock.errors import BadInput
from penstock_lab.workloads.records import Load, is_hot, write_options
from penstock_lab.workloads.source import PRELOAD_PER_BATCH, read_load
from penstock_lab.workloads.state_stores import ROCKSDB_STATE

_MULTIPLIER, _MODULUS = 1_103_515_245, 2**31 - 1
"""A record's draw is (number · multiplier + seed) mod a prime: exact in 64 bits, in Spark as here."""
_CANDIDATES_A_KEY = 40
Count = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


@dataclass(frozen=True, slots=True)
class KeyCount(Load):
    """One key-count: its load, its keys and the number of state partitions."""

    keys: int
    bins: int = 16
    preload: bool = True
    preload_per_batch: int = PRELOAD_PER_BATCH
    hot_share: float = 0.0
    """Share of the records that goes to the hot keys instead of being spread over all keys."""
    hot_keys: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.hot_keys <= self.keys < _MODULUS and self.bins >= 1):
            raise BadInput(f"a key-count needs 1 <= hot_keys <= keys < {_MODULUS} and at least one bin")
        if not 0 <= self.hot_share <= 1:
            raise BadInput(f"hot_share is {self.hot_share:g}, not between 0 and 1")

    @property
    def preloaded(self) -> int:
        """Records before the profile begins: one a key, or none."""
        return self.keys if self.preload else 0

    def list_options(self) -> dict[str, str]:
        """Return the options of the load source; `max_records` counts without the preload."""
        most = None if self.max_records is None else self.max_records + self.preloaded
        preload = {"preload": self.preloaded or None, "preloadPerBatch": self.preload_per_batch}
        more = write_options({"content": "numbers", "maxRecords": most, **preload})
        return {**Load.list_options(self), **more}

    def find_key(self, number: int) -> int:
        """Return the key of a record, in plain Python: the reference for the query."""
        if number < self.preloaded:
            return number
        draw = (number % _MODULUS * _MULTIPLIER + self.seed) % _MODULUS
        return draw % (self.hot_keys if is_hot(number, self.hot_share) else self.keys)

    def count_keys(self, records: int) -> Counter[int]:
        """Return the reference answer after so many records, preload included."""
        return Counter(self.find_key(number) for number in range(records))


def build_key_count(spark: SparkSession, workload: KeyCount) -> DataFrame:
    """Return the streaming DataFrame (key, count); sets the session's state store and number of bins."""
    spark.conf.set("spark.sql.shuffle.partitions", workload.bins)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB_STATE)
    number = sf.col("number")
    draw = (number % _MODULUS * _MULTIPLIER + workload.seed) % _MODULUS
    hot = sf.when(is_hot(number, workload.hot_share), draw % workload.hot_keys)
    key = sf.when(number < workload.preloaded, number).otherwise(hot.otherwise(draw % workload.keys))
    return read_load(spark, workload).select(key.alias("key")).groupBy("key").count()


@dataclass(frozen=True, slots=True)
class SkewedState(Load):
    """One query: its load, its service time, and what becomes hot from which record on."""

    seconds_per_record: float
    share: float
    """Share of the records that goes to the hot key instead of being spread over all."""
    even_records: int = 0
    bins: int = 16
    keys_a_bin: int = 4

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise BadInput(f"share is {self.share:g}, not between 0 and 1")
        if self.bins < 1 or self.keys_a_bin < 1:
            raise BadInput("a skewed state needs a bin and a key in it at least")

    def find_place(self, number: int) -> int:
        """Return the place in the list of keys of a record, in plain Python; the hot key is the first."""
        hot = number >= self.even_records and is_hot(number, self.share)
        return 0 if hot else number % (self.bins * self.keys_a_bin)

    @property
    def hot_bin_share(self) -> float:
        """The share of all records that go to the bin of the hot key."""
        return self.share + (1 - self.share) / self.bins

    def list_options(self) -> dict[str, str]:
        """Return the options of the load source."""
        return {**Load.list_options(self), "content": "numbers"}


def find_keys(spark: SparkSession, workload: SkewedState) -> list[int]:
    """Ask Spark for as many keys in each bin, in turns: place n belongs to the bin of place n mod bins."""
    candidates = spark.range(workload.bins * workload.keys_a_bin * _CANDIDATES_A_KEY)
    placed = candidates.select("id", sf.expr(f"pmod(hash(id), {workload.bins})").alias("bin")).collect()
    by_bin: dict[int, list[int]] = {number: [] for number in range(workload.bins)}
    for row in placed:
        by_bin[row["bin"]].append(row["id"])
    return [by_bin[bin_][turn] for turn in range(workload.keys_a_bin) for bin_ in range(workload.bins)]


def build_skewed_state(spark: SparkSession, workload: SkewedState) -> DataFrame:
    """Return the streaming DataFrame (key, count); bin 0 is hot. Sets the session's number of bins."""
    spark.conf.set("spark.sql.shuffle.partitions", workload.bins)
    keys = sf.array(*[sf.lit(key).cast("long") for key in find_keys(spark, workload)])
    number = sf.col("number")
    hot = (number >= workload.even_records) & is_hot(number, workload.share)
    place = sf.when(hot, 0).otherwise(number % (workload.bins * workload.keys_a_bin)).cast("int")
    keyed = read_load(spark, workload).select(sf.get(keys, place).alias("key"))
    return keyed.groupBy("key").applyInPandasWithState(
        _make_counter(workload.seconds_per_record),
        "key long, count long",
        "count long",
        "update",
        GroupStateTimeout.NoTimeout,
    )


def _make_counter(seconds_per_record: float) -> Count:
    """Make a function that serves the records of a key one after the other, and adds them to its count."""

    def count(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        records = sum(len(frame) for frame in frames)
        time.sleep(records * seconds_per_record)
        seen = records + (state.get[0] if state.exists else 0)
        state.update((seen,))
        yield pd.DataFrame({"key": [key[0]], "count": [seen]})

    return count
