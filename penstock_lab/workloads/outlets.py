"""Where records go: files that appear whole, and Kafka topics that have acknowledged every record."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import BadInput
from penstock.fleet.files import write_whole

QUEUE = 100_000
"""Records that a producer holds at most before they must be flushed."""
_JSON = orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z


def dump_json(row: dict[str, Any]) -> bytes:
    """Write a row as a JSON object, times in UTC."""
    return orjson.dumps(row, option=_JSON)


def write_batch(batch: pa.RecordBatch, path: Path) -> None:
    """One file; a reader of the directory never sees it half written."""
    if path.suffix == ".json":
        content = b"".join(dump_json(row) + b"\n" for row in batch.to_pylist())
    else:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches([batch]), sink)
        content = sink.getvalue().to_pybytes()
    write_whole(path, content)


class TopicWriter:
    """Writes to an existing Kafka topic; a `write` returns once every record is acknowledged."""

    def __init__(self, brokers: str, topic: str, timeout_seconds: float = 60.0) -> None:
        self._producer = _producer(brokers, timeout_seconds)
        self._topic = topic
        self._failed: list[Any] = []

    def write(self, values: Iterable[bytes], partitions: Iterable[int] | None = None) -> None:
        """Write at most `QUEUE` values, each to its partition; without partitions Kafka chooses."""
        for value, partition in zip(values, repeat(-1) if partitions is None else partitions, strict=False):
            self._producer.produce(
                self._topic, value=value, partition=partition, on_delivery=self._note_delivery
            )
        self._producer.flush()
        if self._failed:
            raise BadInput(
                f"{len(self._failed)} records did not reach the topic {self._topic}: {self._failed[0]}"
            )

    def _note_delivery(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)


def _producer(brokers: str, timeout_seconds: float) -> Any:
    try:
        from confluent_kafka import Producer
    except ImportError:
        raise BadInput("a Kafka topic needs the package confluent-kafka") from None
    settings = {"queue.buffering.max.messages": QUEUE, "linger.ms": 20, "log_level": 0}
    patience = {"message.timeout.ms": round(timeout_seconds * 1000)}
    return Producer({"bootstrap.servers": brokers, **settings, **patience})
