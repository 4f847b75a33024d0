"""The fleet's controller as one Structured Streaming job, partitioned by application.

Files or messages are read in Python as columns, shuffled as a few byte strings by bucket, and judged a bucket
at a time; the state of thousands of applications is one value in Spark's state store. Seen on Spark 4.3.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from penstock.errors import BadInput
from penstock.fleet.overrides import keep_overrides, overrides_in_effect
from penstock.fleet.packing import DEAD_BUCKET, PACKED, decode, encode, pack
from penstock.fleet.places import MOST_AHEAD_SECONDS, FleetDirectory, Topic
from penstock.fleet.records import read_lines, read_parquet
from penstock.fleet.results import decisions_of, status_of, told
from penstock.fleet.round import FleetSettings, play
from penstock.fleet.state import empty_state, from_bytes, to_bytes
from penstock.spark_start import started

log = logging.getLogger(__name__)

_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_RESULT = "bucket INT, kind STRING, payload BINARY"
_STATE = "state BINARY"
DECISIONS, STATUS, TOLD, DEAD = "decisions", "status", "told", "dead"


def session(conf: Mapping[str, str]) -> SparkSession:
    """A session for the job; on this machine unless a master is given."""
    # workers must find this package: they run the Python that runs this
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    defaults = {
        "spark.master": "local[*]",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.appName("penstock-fleet")
    for key, value in {**defaults, **conf}.items():
        builder = builder.config(key, value)
    return started(builder)


def start(
    spark: SparkSession,
    source: Path | Topic,
    directory: FleetDirectory,
    settings: FleetSettings,
    *,
    interval: str | None,
    overrides: Path | None = None,
    after_batch: Callable[[int, pa.Table], None] = lambda batch, decisions: None,
) -> StreamingQuery:
    """Start the job; without an interval it works off what is there and ends.

    `after_batch` is called with the decisions of each batch once they are on the disk, at least once.
    """

    def after(batch: int, decisions: pa.Table) -> None:
        if overrides is not None:
            keep_overrides(overrides, time.time())
        after_batch(batch, decisions)

    if overrides is not None:
        keep_overrides(overrides, time.time())
    trigger = {"processingTime": interval} if interval else {"availableNow": True}
    packed = _read(spark, source).mapInArrow(_packer(overrides), _ddl(PACKED))
    judged = packed.groupBy("bucket").applyInPandasWithState(
        _judge(settings), _RESULT, _STATE, "update", GroupStateTimeout.NoTimeout
    )
    return (
        judged.writeStream.outputMode("update")
        .foreachBatch(_sink(directory, after))
        .option("checkpointLocation", str(directory.checkpoint.absolute()))
        .queryName("penstock-fleet")
        .trigger(**trigger)
        .start()
    )


def _read(spark: SparkSession, source: Path | Topic) -> DataFrame:
    if isinstance(source, Topic):
        stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", source.servers)
        stream = stream.option("subscribe", source.name).option("startingOffsets", "earliest")
        # windows that the topic has dropped while the controller was away are old: the newest ones count
        stream = stream.option("failOnDataLoss", "false")
        return stream.load().selectExpr(
            "concat(topic, '/', partition, '/', offset) AS path", "value AS content"
        )
    if not source.is_dir():
        raise BadInput(f"{source}: no such directory")
    stream = spark.readStream.format("binaryFile").schema(_FILES)
    return stream.load(str(source.absolute())).select("path", "content")


def _packer(overrides: Path | None) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def packer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        said, _ = overrides_in_effect(overrides)
        for batch in batches:
            for read in _reads(batch):
                rows = list(pack(read, said))
                if rows:
                    buckets, payloads = zip(*rows, strict=True)
                    yield pa.RecordBatch.from_arrays(
                        [pa.array(buckets, pa.int32()), pa.array(payloads, pa.binary())], schema=PACKED
                    )

    return packer


def _reads(batch: pa.RecordBatch) -> Iterator[Any]:
    """Parquet files one by one; lines of JSON of all files and messages together."""
    lines: list[bytes] = []
    origins: list[str] = []
    latest = time.time() + MOST_AHEAD_SECONDS
    for path, content in zip(batch["path"].to_pylist(), batch["content"], strict=True):
        text = content.as_py() or b""
        if path.endswith(".parquet"):
            yield read_parquet(text, path, latest)
            continue
        found = text.split(b"\n")
        lines.extend(found)
        origins.extend([path] * len(found))
    yield read_lines(lines, origins, latest)


def _judge(settings: FleetSettings) -> Callable[..., Iterator[pd.DataFrame]]:
    def judge(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        table = decode([payload for frame in frames for payload in frame["payload"]])
        if key[0] == DEAD_BUCKET:
            yield _rows(key[0], {DEAD: encode(table)})
            return
        before = from_bytes(state.get[0]) if state.exists else empty_state()
        result = play(before, table, settings)
        state.update((to_bytes(result.state),))
        yield _rows(
            key[0],
            {
                DECISIONS: encode(decisions_of(result, settings)),
                STATUS: encode(status_of(result.state, settings)),
                TOLD: orjson.dumps(told(result)),
            },
        )

    return judge


def _rows(bucket: int, payloads: dict[str, bytes]) -> pd.DataFrame:
    return pd.DataFrame(
        {"bucket": [bucket] * len(payloads), "kind": list(payloads), "payload": list(payloads.values())}
    )


def _sink(
    directory: FleetDirectory, after_batch: Callable[[int, pa.Table], None]
) -> Callable[[DataFrame, int], None]:
    """Writes a batch; done again after a failure, it writes the same files again."""

    def sink(frame: DataFrame, batch: int) -> None:
        rows = sorted(frame.collect(), key=lambda row: (row.bucket, row.kind))
        dead = [bytes(row.payload) for row in rows if row.kind == DEAD]
        if dead:
            directory.write_dead(batch, decode(dead))
        for row in rows:
            if row.kind == STATUS:
                directory.write_status(row.bucket, decode([bytes(row.payload)]))
            elif row.kind == TOLD:
                log.info("bucket %d: %s", row.bucket, bytes(row.payload).decode())
        found = [bytes(row.payload) for row in rows if row.kind == DECISIONS]
        if found:
            decisions = decode(found)
            directory.write_decisions(batch, decisions)
            after_batch(batch, decisions)

    return sink


def _ddl(schema: pa.Schema) -> str:
    names = {pa.int32(): "INT", pa.binary(): "BINARY"}
    return ", ".join(f"{field.name} {names[field.type]}" for field in schema)
