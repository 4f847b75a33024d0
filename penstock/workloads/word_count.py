"""The word count of Dhalion and DS2 (section 5.2): Source → FlatMap → Count, with paced operators.

In the paper an instance of FlatMap splits 100,000 sentences a minute and an instance of Count counts
1,000,000 words a minute; a million sentences a minute of 20 words then need 10 + 20 instances. Here
the rates are scaled down and the ratio is kept: a word costs a tenth of a sentence.

Three stages result: Source and FlatMap are chained, Count follows the shuffle by word, and a small
stage keeps the totals in the state store. Its few rows need few tasks, and each of them opens and
commits a store, so it has its own, smaller number of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from penstock.workloads.paced import paced
from penstock.workloads.sentences import WORDS_PER_SENTENCE
from penstock.workloads.source import FORMAT, LoadSource

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SENTENCE_TO_WORD_COST = 10
"""100,000 sentences against 1,000,000 words a minute."""


@dataclass(frozen=True, slots=True)
class WordCount:
    """One word count: its load, its service times and its number of tasks."""

    profile: str
    seconds_per_sentence: float
    seconds_per_word: float
    source_partitions: int = 6
    count_partitions: int = 6
    state_partitions: int = 3
    seed: int = 0
    skew: float = 0.0
    """Share of the words that are one and the same: all of them go to one instance of Count."""
    start: float | None = None
    max_records: int | None = None
    max_records_per_batch: int | None = None

    @staticmethod
    def needing(slots: float, rate: float, profile: str | None = None) -> WordCount:
        """A word count that keeps this many slots busy at this rate, a third of them with FlatMap."""
        per_sentence = slots / rate / (1 + WORDS_PER_SENTENCE / SENTENCE_TO_WORD_COST)
        return WordCount(
            profile=profile or f"constant:{rate:g}",
            seconds_per_sentence=per_sentence,
            seconds_per_word=per_sentence / SENTENCE_TO_WORD_COST,
        )

    def with_tasks(self, tasks: int) -> WordCount:
        """The same load cut into so many tasks for FlatMap and for Count."""
        return replace(self, source_partitions=tasks, count_partitions=tasks)

    def slots_needed(self, rate: float) -> float:
        """Slots that the service times alone keep busy at this rate of sentences."""
        return rate * (self.seconds_per_sentence + WORDS_PER_SENTENCE * self.seconds_per_word)

    def source_options(self) -> dict[str, str]:
        """Options of the load source."""
        options = {
            "profile": self.profile,
            "partitions": self.source_partitions,
            "seed": self.seed,
            "skew": self.skew or None,
            "start": self.start,
            "maxRecords": self.max_records,
            "maxRecordsPerBatch": self.max_records_per_batch,
        }
        return {key: str(value) for key, value in options.items() if value is not None}


def word_counts_of(spark: SparkSession, workload: WordCount) -> DataFrame:
    """The streaming DataFrame (word, count)."""
    spark.dataSource.register(LoadSource)
    spark.conf.set("spark.sql.shuffle.partitions", workload.state_partitions)
    sentences = spark.readStream.format(FORMAT).options(**workload.source_options()).load()
    words = sentences.select("sentence").mapInArrow(flat_map(workload.seconds_per_sentence), "word string")
    by_word = words.repartition(workload.count_partitions, "word")
    counted = by_word.mapInArrow(count_words(workload.seconds_per_word), "word string, seen bigint")
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
    mode = "complete" if sink == "memory" else "update"
    writer = word_counts_of(spark, workload).writeStream.queryName(name).outputMode(mode).format(sink)
    timed = writer.trigger(processingTime=f"{round(trigger_seconds * 1000)} milliseconds")
    return timed.option("checkpointLocation", checkpoint).start()


def flat_map(seconds_per_sentence: float) -> ArrowFunction:
    """Split sentences into words, an instance serving one sentence after the other."""

    def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return paced(batches, seconds_per_sentence, split_batch)

    return split


def count_words(seconds_per_word: float) -> ArrowFunction:
    """Count the words of each batch, an instance serving one word after the other."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return paced(batches, seconds_per_word, count_batch)

    return count


def split_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One row a word."""
    words = pc.list_flatten(pc.split_pattern(batch.column(0), " "))
    return pa.RecordBatch.from_arrays([words], names=["word"])


def count_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One row a distinct word, with how often it was seen."""
    counts = pc.value_counts(batch.column(0))
    return pa.RecordBatch.from_arrays(
        [counts.field("values"), counts.field("counts")], names=["word", "seen"]
    )
