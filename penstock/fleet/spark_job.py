"""The fleet's controller as one Structured Streaming job, partitioned by application.

Files or messages are read in Python as columns, shuffled as a few byte strings by bucket, and judged a bucket
at a time; the state of thousands of applications is one value in Spark's state store. Seen on Spark 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from penstock.decide.sage.settings import SageSettings
from penstock.errors import BadInput
from penstock.fleet.admission import Admission
from penstock.fleet.budget import FleetBudget
from penstock.fleet.kafka import translate_for_spark
from penstock.fleet.overrides import FleetOverrides, read_snapshot
from penstock.fleet.places import LONGEST_LINE, FleetDirectory, FleetTopic
from penstock.fleet.records import DEAD_BUCKET, PACKED, Read, decode, encode, move_back, pack
from penstock.fleet.round import describe_round, play_round, tabulate_decisions
from penstock.fleet.state import empty_state, from_bytes, to_bytes
from penstock.fleet.status import tabulate_status
from penstock.observe.spark_session import start_session

log = logging.getLogger(__name__)

_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_RESULT = "bucket INT, kind STRING, payload BINARY"
_STATE = "state BINARY"
_CLOCK = "CAST(current_timestamp() AS DOUBLE) AS now"
"""The time of the batch, which Spark keeps: a batch that is done again has the same."""
DECISIONS, STATUS, TOLD, DEAD = "decisions", "status", "told", "dead"


def session(conf: Mapping[str, str]) -> SparkSession:
    """Start a session for the job; on this machine unless a master is given."""
    defaults = {"spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false"}
    return start_session("penstock-fleet", {**defaults, **conf})


def start(  # noqa: PLR0913
    spark: SparkSession,
    source: Path | FleetTopic,
    directory: FleetDirectory,
    settings: SageSettings,
    *,
    interval: str | None,
    admission: Admission | None = None,
    overrides: FleetOverrides | None = None,
    budget: FleetBudget | None = None,
    require_lead: Callable[[], None] = lambda: None,
    after_batch: Callable[[int, pa.Table], None] = lambda batch, decisions: None,
) -> StreamingQuery:
    """Start the job; without an interval it works off what is there and ends.

    `admission` says whose windows are believed; those from a topic by a key alone.
    `budget` puts off what exceeds it; `require_lead` raises where another controller decides.
    `after_batch` is called with the decisions of each batch once they are on the disk, at least once.
    """
    admission = admission or Admission()
    admission.check(source)

    def after(batch: int, decisions: pa.Table) -> None:
        if overrides is not None:
            overrides.refresh()
        after_batch(batch, decisions)

    if overrides is not None:
        overrides.refresh()
    snapshot = overrides.snapshot.absolute() if overrides is not None else None
    trigger = {"processingTime": interval} if interval else {"availableNow": True}
    packed = _read(spark, source).mapInArrow(_packer(snapshot, admission), _ddl(PACKED))
    judged = packed.groupBy("bucket").applyInPandasWithState(
        _judge(settings, admission), _RESULT, _STATE, "update", GroupStateTimeout.NoTimeout
    )
    return (
        judged.writeStream.outputMode("update")
        .foreachBatch(_sink(directory, budget or FleetBudget(directory), require_lead, after))
        .option("checkpointLocation", str(directory.checkpoint.absolute()))
        .queryName("penstock-fleet")
        .trigger(**trigger)
        .start()
    )


def _read(spark: SparkSession, source: Path | FleetTopic) -> DataFrame:
    if isinstance(source, FleetTopic):
        stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", source.servers)
        stream = stream.options(**translate_for_spark(source.security))
        stream = stream.option("subscribe", source.name).option("startingOffsets", "earliest")
        # windows that the topic has dropped while the controller was away are old: the newest ones count
        stream = stream.option("failOnDataLoss", "false")
        # one byte more than a message may have shows that it has more
        return stream.load().selectExpr(
            "concat(topic, '/', partition, '/', offset) AS path",
            f"substring(value, 1, {LONGEST_LINE + 1}) AS content",
            _CLOCK,
        )
    if not source.is_dir():
        raise BadInput(f"{source}: no such directory")
    stream = spark.readStream.format("binaryFile").schema(_FILES)
    # without the content: Spark would take a file of any size into memory, and fail beyond 2 GiB
    return stream.load(str(source.absolute())).selectExpr("path", _CLOCK)


def _packer(
    snapshot: Path | None, admission: Admission
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def packer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        orders, _ = read_snapshot(snapshot)
        for batch in batches:
            for read in _reads(batch, admission):
                rows = list(pack(read, orders))
                if rows:
                    buckets, payloads = zip(*rows, strict=True)
                    yield pa.RecordBatch.from_arrays(
                        [pa.array(buckets, pa.int32()), pa.array(payloads, pa.binary())], schema=PACKED
                    )

    return packer


def _reads(batch: pa.RecordBatch, admission: Admission) -> Iterator[Read]:
    """Read messages, which come with their content, or files, which do not."""
    if not batch.num_rows:
        return
    origins, now = batch["path"].to_pylist(), float(batch["now"][0].as_py())
    if "content" in batch.schema.names:
        yield admission.read_messages(origins, (one.as_py() or b"" for one in batch["content"]), now)
    else:
        yield from admission.read_files(origins, now)


def _judge(settings: SageSettings, admission: Admission) -> Callable[..., Iterator[pd.DataFrame]]:
    def judge(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        table = decode([payload for frame in frames for payload in frame["payload"]])
        if key[0] == DEAD_BUCKET:
            yield _rows(key[0], {DEAD: encode(table)})
            return
        before = from_bytes(state.get[0]) if state.exists else empty_state()
        now = state.getCurrentProcessingTimeMs() / 1000
        result = play_round(before, move_back(table, now), settings)
        state.update((to_bytes(result.state),))
        yield _rows(
            key[0],
            {
                DECISIONS: encode(admission.sign(tabulate_decisions(result, settings))),
                STATUS: encode(tabulate_status(result.state, settings)),
                TOLD: orjson.dumps(describe_round(result)),
            },
        )

    return judge


def _rows(bucket: int, payloads: dict[str, bytes]) -> pd.DataFrame:
    return pd.DataFrame(
        {"bucket": [bucket] * len(payloads), "kind": list(payloads), "payload": list(payloads.values())}
    )


def _sink(
    directory: FleetDirectory,
    budget: FleetBudget,
    require_lead: Callable[[], None],
    after_batch: Callable[[int, pa.Table], None],
) -> Callable[[DataFrame, int], None]:
    """Return what writes a batch; done again after a failure, it writes the same files again."""

    def sink(frame: DataFrame, batch: int) -> None:
        rows = sorted(frame.collect(), key=lambda row: (row.bucket, row.kind))
        # as late as can be: a controller that slept in between must not write beside its successor
        require_lead()
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
            decisions = budget.admit(batch, decode(found))
            directory.write_decisions(batch, decisions)
            after_batch(batch, decisions)

    return sink


def _ddl(schema: pa.Schema) -> str:
    names = {pa.int32(): "INT", pa.binary(): "BINARY"}
    return ", ".join(f"{field.name} {names[field.type]}" for field in schema)


def publish(spark: SparkSession, topic: FleetTopic, decisions: pa.Table) -> None:
    """Send the decisions; done again after a failure they come twice, and agents take each once."""
    if not decisions.num_rows:
        return
    rows = [(row["application"], orjson.dumps(row).decode()) for row in decisions.to_pylist()]
    frame = spark.createDataFrame(rows, "key STRING, value STRING")
    options = {
        "kafka.bootstrap.servers": topic.servers,
        "topic": topic.name,
        **translate_for_spark(topic.security),
    }
    frame.write.format("kafka").options(**options).save()
