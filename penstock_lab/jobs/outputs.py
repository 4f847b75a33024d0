"""The output of a job, read without Spark and compared with the right answer."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from penstock.errors import BadInput
from penstock_lab.jobs.answers import Rows, as_rows, name_rows
from penstock_lab.jobs.places import RunPlace

BATCH = "batch="
"""Names of the directories that a `foreachBatch` writes begin so."""
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """How an output differs from the right answer."""

    missing: int
    unexpected: int
    repeated: int
    """Rows that are there too often."""
    examples: tuple[tuple[Any, ...], ...] = ()
    """Some of the rows that differ."""

    @property
    def equal(self) -> bool:
        """Whether it does not differ at all."""
        return not (self.missing or self.unexpected or self.repeated)


def compare_rows(answer: Rows, found: Rows, at_least_once: bool = False) -> OutputComparison:
    """Compare two sets of rows; a sink that delivers at least once may repeat rows."""
    missing = [row for row, count in answer.items() if found[row] < count]
    unexpected = [row for row in found if row not in answer]
    repeated = [] if at_least_once else [row for row, count in found.items() if 0 < answer[row] < count]
    examples = (*missing[:3], *unexpected[:3], *repeated[:3])
    return OutputComparison(len(missing), len(unexpected), len(repeated), examples)


def read_appended(directory: Path, columns: Sequence[str]) -> Rows:
    """Return the rows of a file sink: only of files that a batch committed, as Spark itself reads it."""
    return as_rows(read_sink(directory, columns))


def read_sink(directory: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Return the committed rows of a file sink as a frame."""
    return _read_files(sorted(set(_list_committed(directory))), columns)


def read_newest(directory: Path, keys: Sequence[str], columns: Sequence[str]) -> Rows:
    """Return for each key its row of the last batch that had one: the outcome of a query in update mode."""
    return as_rows(read_updates(directory, keys, columns))


def read_updates(directory: Path, keys: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Return the newest row of each key as a frame."""
    batches = [_read_files(files, columns) for files in finished_batches(directory)]
    rows = pd.concat(batches) if batches else pd.DataFrame(columns=list(columns))
    return rows.drop_duplicates(list(keys), keep="last")


def finished_batches(directory: Path) -> Iterator[list[Path]]:
    """Yield the files of each batch that was written to its end, in the order of batches."""
    found = (path for path in directory.glob(f"{BATCH}*") if (path / "_SUCCESS").exists())
    for path in sorted(found, key=lambda path: int(path.name.removeprefix(BATCH))):
        yield sorted(path.glob("*.parquet"))


def read_topic(brokers: str, topic: str, columns: Sequence[str]) -> Rows:
    """Return the JSON records of a topic, from its beginning to where it ends now."""
    values = (orjson.loads(value) for value in _topic_values(brokers, topic))
    return Counter(tuple(value[column] for column in columns) for value in values)


def read_three_places(place: RunPlace) -> Rows:
    """Return what the job with three writes a batch has written."""
    columns = ("order_id", "customer", "product", "amount")
    batches = [_read_files(files, columns) for files in finished_batches(place.output)]
    kept = pd.concat(batches) if batches else pd.DataFrame(columns=list(columns))
    customers = counts = pd.DataFrame()
    if place.database.exists():
        with closing(sqlite3.connect(f"file:{place.database}?mode=ro", uri=True)) as connection:
            customers = pd.read_sql("select customer, number, amount from customers", connection)
            sums = "select product, sum(orders) as orders from batches group by product"
            counts = pd.read_sql(sums, connection)
    return name_rows("customers", customers) + name_rows("counts", counts) + name_rows("orders", kept)


def read_totals_and_archive(place: RunPlace) -> Rows:
    """Return what the two queries of one application have written."""
    totals = read_updates(
        place.output / "totals", ("window_start", "product"), ("window_start", "product", "orders", "amount")
    )
    archive = read_sink(place.output / "archive", ("order_id", "customer", "amount"))
    return name_rows("totals", totals) + name_rows("archive", archive)


def _list_committed(directory: Path) -> Iterator[Path]:
    """Yield the files that Spark's log of the sink names; a compacted entry repeats the ones before it."""
    for entry in (directory / "_spark_metadata").glob("*"):
        if entry.name.startswith("."):
            continue
        _version, *lines = entry.read_text(encoding="utf-8").splitlines()
        for line in lines:
            yield Path(unquote(urlparse(orjson.loads(line)["path"]).path))


def _read_files(files: Sequence[Path], columns: Sequence[str]) -> pd.DataFrame:
    """Read columns of Parquet files; times become milliseconds since the epoch."""
    tables = [pq.read_table(file, columns=list(columns), partitioning=None) for file in files]
    if not tables:
        return pd.DataFrame(columns=list(columns))
    whole = pa.concat_tables(tables)
    arrays = {name: _plain(whole.column(name)) for name in columns}
    return pd.DataFrame({name: array.to_pandas() for name, array in arrays.items()})


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.cast(column, pa.timestamp("ms", column.type.tz)).cast(pa.int64())


def _topic_values(brokers: str, topic: str) -> Iterator[bytes]:
    settings = {"bootstrap.servers": brokers, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": False, "log_level": 0})
    with closing(consumer):
        partitions = consumer.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic].partitions
        for partition in partitions:
            yield from _partition_values(consumer, topic, partition)


def _partition_values(consumer: Consumer, topic: str, partition: int) -> Iterator[bytes]:
    first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_SECONDS)
    if first == end:
        return
    consumer.assign([TopicPartition(topic, partition, first)])
    newest = first - 1
    while newest < end - 1:
        message = consumer.poll(PATIENCE_SECONDS)
        if message is None or message.error():
            raise BadInput(f"the topic {topic} cannot be read: {message and message.error()}")
        newest = int(message.offset() or 0)
        yield bytes(message.value() or b"")
