"""Nexmark events as streams: from the generator as a Spark source, from files, or from a Kafka topic."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.errors import BadInput
from penstock_lab.workloads.nexmark.events import (
    AUCTIONS_A_ROUND,
    COLUMNS,
    EVENTS_A_ROUND,
    Nexmark,
    write_schema,
)
from penstock_lab.workloads.outlets import TopicWriter, dump_json, write_batch
from penstock_lab.workloads.paced import pace_batches
from penstock_lab.workloads.source import Content, LoadOptions, LoadSource, read_number


class Streams(Protocol):
    """The three kinds of events as streaming DataFrames; a query asks for the columns that it needs."""

    def read(self, kind: str, *columns: str) -> DataFrame:
        """Return persons, auctions or bids."""


@dataclass(frozen=True)
class GeneratedStreams:
    """Events made on the executors, at the pace of a rate profile."""

    spark: SparkSession
    stream: Nexmark
    load: Mapping[str, str]
    """Options of the load source: profile, partitions, start, maxRecords, maxRecordsPerBatch."""

    def read(self, kind: str, *columns: str) -> DataFrame:
        """Make one kind of event, and only the columns asked for."""
        self.spark.dataSource.register(NexmarkSource)
        options = {**self.load, **write_source_options(self.stream, kind, columns)}
        return self.spark.readStream.format(NEXMARK_FORMAT).options(**options).load()


@dataclass(frozen=True)
class FileStreams:
    """Events from the files that `write_files` makes."""

    spark: SparkSession
    directory: Path
    form: str = "parquet"
    files_per_batch: int | None = None

    def read(self, kind: str, *columns: str) -> DataFrame:
        """Read one kind of event, file by file in the order of their modification times."""
        reader = self.spark.readStream.format(self.form).schema(write_schema(kind))
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

    def read(self, kind: str, *columns: str) -> DataFrame:
        """Read one kind of event from the topic that all kinds share."""
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.brokers)
        records = reader.option("subscribe", self.topic).options(**self.options).load()
        schema = f"kind string, {write_schema(kind)}"
        events = records.select(sf.from_json(sf.col("value").cast("string"), schema).alias("event"))
        return events.select("event.*").where(sf.col("kind") == kind).drop("kind").select(*columns or "*")


@dataclass(frozen=True)
class PacedStreams:
    """The same events, each after a service time in a slot: what a query needs is known beforehand."""

    streams: Streams
    seconds_per_record: float

    def read(self, kind: str, *columns: str) -> DataFrame:
        """Serve events one after the other, by as many instances as the source has partitions."""
        events = self.streams.read(kind, *columns)
        return events.mapInArrow(pace_batches(self.seconds_per_record, lambda batch: batch), events.schema)


NEXMARK_FORMAT = "penstock-nexmark"
_FIELDS = {
    re.sub(r"_(\w)", lambda letter: letter[1].upper(), one.name): one
    for one in fields(Nexmark)
    if one.name != "seed"
}
"""Option of the source → field of the generator: `eventsPerSecond`, `outOfOrderShare` and so on."""


@dataclass(frozen=True, slots=True)
class EventsOfKind:
    """The content of one source: one kind of event, some of its columns."""

    stream: Nexmark
    kind: str
    columns: tuple[str, ...]
    rows_per_batch: int = 50_000

    @property
    def schema(self) -> str:
        """The columns asked for."""
        return write_schema(self.kind, self.columns)

    def batch(self, first: int, count: int) -> pa.RecordBatch:
        """Return the events of this kind in a range of events."""
        return self.stream.batch(self.kind, first, count, self.columns)


class NexmarkSource(LoadSource):
    """The data source to register."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NEXMARK_FORMAT

    def make_content(self) -> Content:
        """Return one kind of event, by the options."""
        kind = self.options.get("kind", "bids")
        if kind not in COLUMNS:
            raise BadInput(f"the option kind is {kind!r}, not one of {', '.join(COLUMNS)}")
        columns = _read_columns(self.options.get("columns"), kind)
        return EventsOfKind(_read_stream(self.options), kind, columns)


def write_source_options(stream: Nexmark, kind: str, columns: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the options that make a source give this stream's events of one kind."""
    options = {option: repr(getattr(stream, one.name)) for option, one in _FIELDS.items()}
    chosen = {"columns": ",".join(columns)} if columns else {}
    return {**options, **chosen, "kind": kind, "seed": str(stream.seed)}


def _read_stream(options: Mapping[str, str]) -> Nexmark:
    given: dict[str, Any] = {}
    for option, one in _FIELDS.items():
        if option in options:
            number = read_number(options, option, 0.0)
            whole = isinstance(one.default, int)
            if whole and not number.is_integer():
                raise BadInput(f"the option {option} is {options[option]!r}, not a whole number")
            given[one.name] = int(number) if whole else number
    return Nexmark(seed=LoadOptions.parse(options).seed, **given)


def _read_columns(text: str | None, kind: str) -> tuple[str, ...]:
    if text is None:
        return tuple(COLUMNS[kind])
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in COLUMNS[kind]]
    if unknown:
        raise BadInput(f"the option columns names {unknown[0]!r}; {kind} have {', '.join(COLUMNS[kind])}")
    return names


FORMATS = ("parquet", "json")
EVENTS_A_CHUNK = 50_000


def write_files(stream: Nexmark, directory: Path, events: int, files: int = 1, form: str = "parquet") -> None:
    """Write events 0 … events-1, cut evenly into so many files of each kind.

    Files get modification times one second apart, the order in which Spark's file source reads them.
    """
    if form not in FORMATS:
        raise BadInput(f"nexmark: the form of files is {form!r}, not {' or '.join(FORMATS)}")
    if files < 1:
        raise BadInput(f"nexmark: events go into a file or more, not {files}")
    cuts = [events * part // files for part in range(files + 1)]
    for kind in COLUMNS:
        (directory / kind).mkdir(parents=True, exist_ok=True)
        for number, (first, end) in enumerate(pairwise(cuts)):
            path = directory / kind / f"part-{number:05d}.{form}"
            write_batch(stream.batch(kind, first, end - first), path)
            os.utime(path, (stream.first_time + number, stream.first_time + number))


def write_json(stream: Nexmark, first: int, count: int) -> Iterator[bytes]:
    """Yield events of all kinds in the order of their numbers, each a JSON object that names its `kind`."""
    rows = {kind: iter(stream.batch(kind, first, count).to_pylist()) for kind in COLUMNS}
    for number in range(first, first + count):
        place = number % EVENTS_A_ROUND
        kind = "persons" if place == 0 else "auctions" if place <= AUCTIONS_A_ROUND else "bids"
        yield dump_json({"kind": kind, **next(rows[kind])})


def produce(
    stream: Nexmark, brokers: str, topic: str, events: int, first: int = 0, timeout_seconds: float = 60.0
) -> None:
    """Write events into an existing Kafka topic, each a JSON object; all must be acknowledged."""
    writer = TopicWriter(brokers, topic, timeout_seconds)
    for start in range(first, first + events, EVENTS_A_CHUNK):
        writer.write(write_json(stream, start, min(EVENTS_A_CHUNK, first + events - start)))
