"""The word count of Dhalion and DS2 (section 5.2): Source → FlatMap → Count, with paced operators.

In the paper an instance of FlatMap splits 100,000 sentences a minute and an instance of Count counts
1,000,000 words a minute; a million sentences a minute of 20 words then need 10 + 20 instances. Here
the rates are scaled down and the ratio is kept: a word costs a tenth of a sentence.

Three stages result: Source and FlatMap are chained, Count follows the shuffle by word, and a small
stage keeps the totals in the state store. Its few rows need few tasks, and each of them opens and
commits a store, so it has its own, smaller number of partitions.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from penstock_lab.workloads.paced import pace_batches
from penstock_lab.workloads.records import WORDS_PER_SENTENCE, Load, write_options
from penstock_lab.workloads.source import read_load, start_counts

SENTENCE_TO_WORD_COST = 10
"""100,000 sentences against 1,000,000 words a minute."""


@dataclass(frozen=True, slots=True)
class WordCount(Load):
    """One word count: its load, its service times and its number of tasks."""

    seconds_per_sentence: float
    seconds_per_word: float
    _: KW_ONLY
    source_partitions: int = 6
    count_partitions: int = 6
    state_partitions: int = 3
    skew: float = 0.0
    """Share of the words that are one and the same: all of them go to one instance of Count."""

    @staticmethod
    def make_for(slots: float, rate: float, profile: str | None = None) -> WordCount:
        """Return a word count that keeps this many slots busy at this rate, a third of them with FlatMap."""
        per_sentence = slots / rate / (1 + WORDS_PER_SENTENCE / SENTENCE_TO_WORD_COST)
        return WordCount(
            profile=profile or f"constant:{rate:g}",
            seconds_per_sentence=per_sentence,
            seconds_per_word=per_sentence / SENTENCE_TO_WORD_COST,
        )

    def with_tasks(self, tasks: int) -> WordCount:
        """Return the same load cut into so many tasks for FlatMap and for Count."""
        return replace(self, source_partitions=tasks, count_partitions=tasks)

    def count_slots(self, rate: float) -> float:
        """Return the slots that the service times alone keep busy at this rate of sentences."""
        return rate * (self.seconds_per_sentence + WORDS_PER_SENTENCE * self.seconds_per_word)

    def list_options(self) -> dict[str, str]:
        """Return the options of the load source."""
        return {**Load.list_options(self), **write_options({"skew": self.skew or None})}


def build_word_count(spark: SparkSession, workload: WordCount) -> DataFrame:
    """Return the streaming DataFrame (word, count).

    An instance of either operator serves one sentence or word after the other.
    """
    spark.conf.set("spark.sql.shuffle.partitions", workload.state_partitions)
    flat_map = pace_batches(workload.seconds_per_sentence, split_batch)
    count = pace_batches(workload.seconds_per_word, count_batch)
    words = read_load(spark, workload).select("sentence").mapInArrow(flat_map, "word string")
    by_word = words.repartition(workload.count_partitions, "word")
    counted = by_word.mapInArrow(count, "word string, seen bigint")
    return counted.groupBy("word").agg(sf.sum("seen").alias("count"))


def start_word_count(
    spark: SparkSession,
    workload: WordCount,
    checkpoint: str,
    *,
    trigger_seconds: float,
    name: str = "word-count",
    sink: str = "noop",
) -> StreamingQuery:
    """Start the query; sink `memory` keeps all counts in a table of the query's name."""
    counts, mode = build_word_count(spark, workload), "complete" if sink == "memory" else "update"
    return start_counts(counts, checkpoint, trigger_seconds=trigger_seconds, name=name, sink=sink, mode=mode)


def split_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return one row a word."""
    words = pc.list_flatten(pc.split_pattern(batch.column(0), " "))
    return pa.RecordBatch.from_arrays([words], names=["word"])


def count_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return one row a distinct word, with how often it was seen."""
    counts = pc.value_counts(batch.column(0))
    return pa.RecordBatch.from_arrays(
        [counts.field("values"), counts.field("counts")], names=["word", "seen"]
    )
