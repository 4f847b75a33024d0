"""Where Nexmark queries read from: the generator as a source, files, or a Kafka topic, all with one face."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.workloads.nexmark import Nexmark, schema_of
from penstock.workloads.nexmark_source import NEXMARK_FORMAT, NexmarkSource, source_options
from penstock.workloads.paced import paced

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Streams(Protocol):
    """The three kinds of events as streaming DataFrames; a query asks for the columns that it needs."""

    def of(self, kind: str, *columns: str) -> DataFrame:
        """Persons, auctions or bids."""


@dataclass(frozen=True)
class GeneratedStreams:
    """Events made on the executors, at the pace of a rate profile."""

    spark: SparkSession
    stream: Nexmark
    load: Mapping[str, str]
    """Options of the load source: profile, partitions, start, maxRecords, maxRecordsPerBatch."""

    def of(self, kind: str, *columns: str) -> DataFrame:
        """Only the columns asked for are made."""
        self.spark.dataSource.register(NexmarkSource)
        options = {**self.load, **source_options(self.stream, kind, columns)}
        return self.spark.readStream.format(NEXMARK_FORMAT).options(**options).load()


@dataclass(frozen=True)
class FileStreams:
    """Events from the files that `write_files` makes."""

    spark: SparkSession
    directory: Path
    form: str = "parquet"
    files_per_batch: int | None = None

    def of(self, kind: str, *columns: str) -> DataFrame:
        """The files are read in the order of their modification times."""
        reader = self.spark.readStream.format(self.form).schema(schema_of(kind))
        if self.files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", self.files_per_batch)
        return reader.load(str(self.directory / kind)).select(*columns or "*")


@dataclass(frozen=True)
class KafkaStreams:
    """Events from a topic that `produce` filled; needs Spark's Kafka connector."""

    spark: SparkSession
    brokers: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict)

    def of(self, kind: str, *columns: str) -> DataFrame:
        """All kinds share the topic; each event names its kind."""
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.brokers)
        records = reader.option("subscribe", self.topic).options(**self.options).load()
        schema = f"kind string, {schema_of(kind)}"
        events = records.select(sf.from_json(sf.col("value").cast("string"), schema).alias("event"))
        return events.select("event.*").where(sf.col("kind") == kind).drop("kind").select(*columns or "*")


@dataclass(frozen=True)
class PacedStreams:
    """The same events, each after a service time in a slot: what a query needs is known beforehand."""

    streams: Streams
    seconds_per_record: float

    def of(self, kind: str, *columns: str) -> DataFrame:
        """Served one after the other by as many instances as the source has partitions."""
        events = self.streams.of(kind, *columns)
        return events.mapInArrow(_served(self.seconds_per_record), events.schema)


def _served(seconds_per_record: float) -> ArrowFunction:
    def served(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return paced(batches, seconds_per_record, lambda batch: batch)

    return served
