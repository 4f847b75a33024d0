"""Nexmark events written down: as Parquet or JSON files, a directory for each kind, or into a Kafka topic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import BadInput
from penstock.workloads.nexmark import COLUMNS, Nexmark

FORMATS = ("parquet", "json")
EVENTS_A_CHUNK = 50_000
_JSON = orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z


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


def write_batch(batch: pa.RecordBatch, path: Path) -> None:
    """One file; a reader of the directory never sees it half written."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    if path.suffix == ".json":
        unfinished.write_bytes(b"".join(orjson.dumps(row, option=_JSON) + b"\n" for row in batch.to_pylist()))
    else:
        pq.write_table(pa.Table.from_batches([batch]), unfinished)
    unfinished.rename(path)


def events_as_json(stream: Nexmark, first: int, count: int) -> Iterator[bytes]:
    """Events of all kinds in the order of their numbers, each a JSON object that names its `kind`."""
    rows = {kind: iter(stream.batch(kind, first, count).to_pylist()) for kind in COLUMNS}
    for number in range(first, first + count):
        kind = kind_of(number)
        yield orjson.dumps({"kind": kind, **next(rows[kind])}, option=_JSON)


def kind_of(number: int) -> str:
    """The kind of an event."""
    place = number % 50
    return "persons" if place == 0 else "auctions" if place < 4 else "bids"


def produce(
    stream: Nexmark, brokers: str, topic: str, events: int, first: int = 0, timeout_seconds: float = 60.0
) -> None:
    """Write events into an existing Kafka topic, each a JSON object; all must be acknowledged."""
    producer, failed = _producer(brokers, timeout_seconds), []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    for start in range(first, first + events, EVENTS_A_CHUNK):
        for value in events_as_json(stream, start, min(EVENTS_A_CHUNK, first + events - start)):
            producer.produce(topic, value=value, on_delivery=delivered)
        producer.flush()
    if failed:
        raise BadInput(f"nexmark: {len(failed)} events did not reach the topic {topic}: {failed[0]}")


def _producer(brokers: str, timeout_seconds: float) -> Any:
    try:
        from confluent_kafka import Producer
    except ImportError:
        raise BadInput("nexmark: a Kafka topic needs the package confluent-kafka") from None
    # the queue holds a whole chunk, so that producing never has to wait for room in it
    settings = {"queue.buffering.max.messages": 2 * EVENTS_A_CHUNK, "linger.ms": 20, "log_level": 0}
    patience = {"message.timeout.ms": round(timeout_seconds * 1000)}
    return Producer({"bootstrap.servers": brokers, **settings, **patience})
