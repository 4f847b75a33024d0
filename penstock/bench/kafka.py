"""What splitting a query into functions costs: three transforms as a pipeline and as one hand-written query.

All four systems read the same records and end with the same ones: a pipeline of three functions, and one
query, each on Kafka topics and on file topics. Records wait in the first topic before anything starts; the
time counts from the begin of the first batch to the end of the last, by Spark's own reports for both.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from penstock.bench.report import BenchReport, Row
from penstock.bench.spark_cluster import ClusterShape, cluster, scratch_directory
from penstock.errors import ActionFailed, Unsupported
from penstock.observe.progress import BatchProgress, parse_progress
from penstock.pipeline import Pipeline, files, kafka
from penstock.pipeline.spark_topics import read_topic
from penstock.pipeline.topics import Files, Kafka, Location, Topic

if TYPE_CHECKING:
    from penstock.bench.kafka_broker import KafkaBroker

SHAPE = ClusterShape(
    executors=2,
    cores=2,
    executor_memory_mb=768,
    name="penstock bench kafka",
    log_level="OFF",
    conf={"spark.scheduler.mode": "FAIR", "spark.sql.shuffle.partitions": "2"},
)
SCHEMA = "number bigint, text string"
INSTANCES = 2
PATIENCE_SECONDS = 280
ORDER = ("one query, files", "pipeline, files", "one query, kafka", "pipeline, kafka")

Transform = Callable[[DataFrame], DataFrame]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Amount:
    """Records in all and in each batch, and how often all is done."""

    records: int
    per_batch: int
    rounds: int

    @property
    def kept(self) -> int:
        """Records that come through: `clean` drops a tenth."""
        return self.records - len(range(3, self.records, 10))


FULL, QUICK = Amount(200_000, 25_000, 3), Amount(40_000, 10_000, 1)
WARM_UP = Amount(4_000, 2_000, 1)


def clean(frame: DataFrame) -> DataFrame:
    """Drop a tenth, and write all in small letters."""
    return frame.where("number % 10 != 3").select("number", sf.lower("text").alias("text"))


def enrich(frame: DataFrame) -> DataFrame:
    """Add what follows from a record alone."""
    return frame.select("number", sf.concat("text", sf.lit(" "), sf.sha2("text", 256)).alias("text"))


def shorten(frame: DataFrame) -> DataFrame:
    """Keep the beginning of each text."""
    return frame.select("number", sf.substring("text", 1, 40).alias("text"))


TRANSFORMS: Mapping[str, Transform] = {"clean": clean, "enrich": enrich, "shorten": shorten}


def run(quick: bool, progress: Progress) -> BenchReport:
    """All four systems in turn, after a short pass of each that is not counted; quick has fewer records."""
    amount = QUICK if quick else FULL
    rates: dict[str, list[float]] = {system: [] for system in ORDER}
    with cluster(_with_connector(SHAPE)) as spark, scratch_directory() as scratch, _broker(scratch) as broker:
        for number, each in enumerate((WARM_UP, *[amount] * amount.rounds)):
            for system in ORDER:
                seconds = _measured(spark, broker, scratch / f"{number}", system, each)
                progress(f"{system}: {each.records} records in {seconds:.1f} s")
                if each is not WARM_UP:
                    rates[system].append(each.records / seconds)
    rows = rows_of(rates)
    return BenchReport("kafka", summary(rows), rows, [], {}, notes(amount))


def _with_connector(shape: ClusterShape) -> ClusterShape:
    """Spark's Kafka sink works only where its classes are there from the start."""
    try:
        from penstock.bench.kafka_broker import connector_jars
    except ImportError:
        raise Unsupported("this benchmark needs the package confluent-kafka") from None
    jars = ":".join(map(str, connector_jars()))
    paths = {f"spark.{side}.extraClassPath": jars for side in ("driver", "executor")}
    return replace(shape, conf={**shape.conf, **paths})


@contextmanager
def _broker(scratch: Path) -> Iterator[KafkaBroker]:
    from penstock.bench.kafka_broker import KafkaBroker

    broker = KafkaBroker(scratch / "broker")
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def _measured(spark: SparkSession, broker: KafkaBroker, scratch: Path, system: str, amount: Amount) -> float:
    """Seconds of one system for all records, checked to have come through."""
    of_pipeline, on_kafka = system.startswith("pipeline"), system.endswith("kafka")
    root = scratch / system.replace(", ", "-").replace(" ", "-")
    place: Location
    if on_kafka:
        place = kafka(
            broker.address, records_per_batch=amount.per_batch, prefix=f"{scratch.name}-{root.name}-"
        )
        _fill_kafka(broker, place, amount.records)
    else:
        place = files(str(root), files_per_batch=INSTANCES)
        _fill_files(root / "raw", amount)
    way = _piped if of_pipeline else _single
    seconds = way(spark, place, root, amount)
    found = counted(spark, place)
    if found != amount.kept:
        raise ActionFailed(f"{system}: {found} records came through, not {amount.kept}")
    return seconds


def pipeline_of(place: Location) -> Pipeline:
    """raw → clean → cleaned → enrich → enriched → shorten → short."""
    pipeline = Pipeline("split", topics=place)
    pipeline.topic("raw", schema=SCHEMA)
    topics = ("raw", "cleaned", "enriched", "short")
    for number, (name, transform) in enumerate(TRANSFORMS.items()):
        pipeline.add(
            transform,
            name=name,
            reads=topics[number],
            writes=topics[number + 1],
            schema=SCHEMA,
            takes="dataframe",
            parallelism=INSTANCES,
        )
    return pipeline


def _piped(spark: SparkSession, place: Location, root: Path, amount: Amount) -> float:
    root.mkdir(parents=True, exist_ok=True)
    settings = {"journal": str(root / "journal.db"), "mode": "observe", "control_socket": False}
    checkpoints = str(root / "checkpoints")
    handle = pipeline_of(place).run(spark, settings=settings, checkpoints=checkpoints, trigger="0s")
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while handle.status()["functions"]["shorten"]["records_read"] < amount.kept:
            handle.wait(0.2)
            if time.monotonic() > deadline:
                raise ActionFailed(f"the pipeline has not served all within {PATIENCE_SECONDS} s")
    finally:
        handle.stop()
    return _last_end(handle.queries["shorten"].query) - _first_start(handle.queries["clean"].query)


def _single(spark: SparkSession, place: Location, root: Path, amount: Amount) -> float:
    """The same transforms as a user would write them by hand, into the sink of the same kind."""
    frame = read_topic(spark, Topic("raw", SCHEMA), place)
    for transform in TRANSFORMS.values():
        frame = transform(frame)
    if isinstance(place, Kafka):
        value = frame.select(sf.to_json(sf.struct("number", "text")).alias("value"))
        writer = value.writeStream.format("kafka").option("kafka.bootstrap.servers", place.servers)
        writer = writer.option("topic", f"{place.prefix}short")
    else:
        assert isinstance(place, Files)
        writer = frame.writeStream.format("parquet").option("path", f"{place.root}/short")
    query = writer.option("checkpointLocation", str(root / "single")).trigger(availableNow=True).start()
    if not query.awaitTermination(PATIENCE_SECONDS):
        query.stop()
        raise ActionFailed(f"the query has not served all within {PATIENCE_SECONDS} s")
    return _last_end(query) - _first_start(query)


def _first_start(query: StreamingQuery) -> float:
    return _executed(query)[0].start


def _last_end(query: StreamingQuery) -> float:
    return _executed(query)[-1].end


def _executed(query: StreamingQuery) -> list[BatchProgress]:
    batches = [parse_progress(json.loads(report.json)) for report in query.recentProgress]
    return [batch for batch in batches if batch.executed]


def texts(first: int, end: int) -> pa.Table:
    """Records of about 60 bytes."""
    numbers = range(first, end)
    return pa.table(
        {
            "number": pa.array(numbers, pa.int64()),
            "text": [f"The Record {number:09d} And What It SAYS" for number in numbers],
        }
    )


def _fill_files(topic: Path, amount: Amount) -> None:
    topic.mkdir(parents=True)
    each = amount.per_batch // INSTANCES
    for first in range(0, amount.records, each):
        pq.write_table(texts(first, min(first + each, amount.records)), topic / f"{first:09d}.parquet")


def _fill_kafka(broker: KafkaBroker, place: Kafka, records: int) -> None:
    from confluent_kafka import Producer

    names = ("raw", "cleaned", "enriched", "short", *(f"{name}.dead" for name in TRANSFORMS))
    broker.create(*(place.prefix + name for name in names), partitions=INSTANCES)
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20, "log_level": 0})
    for number, record in enumerate(texts(0, records).to_pylist()):
        producer.produce(
            f"{place.prefix}raw", value=json.dumps(record).encode(), partition=number % INSTANCES
        )
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


def counted(spark: SparkSession, place: Location) -> int:
    """Different records in the last topic."""
    if isinstance(place, Kafka):
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", place.servers)
        frame = reader.option("subscribe", f"{place.prefix}short").load().select("value")
    else:
        assert isinstance(place, Files)
        reader = spark.read.option("recursiveFileLookup", "true").schema(SCHEMA)
        frame = reader.parquet(f"{place.root}/short").select("number")
    return frame.distinct().count()


def rows_of(rates: Mapping[str, Sequence[float]]) -> list[Row]:
    """A row a system; the ratio says how many times slower it is than one query on the same topics."""
    median = {system: statistics.median(found) for system, found in rates.items() if found}
    rows = []
    for system, rate in median.items():
        alone = median.get(f"one query, {system.rpartition(', ')[2]}")
        rows.append(
            {
                "case": system.rpartition(", ")[2],
                "system": system,
                "records_per_second": round(rate),
                "cost_ratio": round(alone / rate, 2) if alone else None,
                "rounds": len(rates[system]),
            }
        )
    return rows


def summary(rows: list[Row]) -> dict[str, float]:
    """Rates, and what splitting costs."""
    found: dict[str, float] = {}
    for row in rows:
        name = row["system"].replace(", ", "_").replace(" ", "_")
        found[f"{name}_records_per_second"] = row["records_per_second"]
        if row["system"].startswith("pipeline") and row["cost_ratio"] is not None:
            found[f"{row['case']}_cost_ratio"] = row["cost_ratio"]
    return found


def notes(amount: Amount) -> list[str]:
    """What a reader should know."""
    return [
        f"{amount.records:,} records of about 60 bytes in batches of up to {amount.per_batch:,}, "
        f"{INSTANCES} instances of each function, {INSTANCES} partitions of each topic; "
        f"rounds: {amount.rounds}, of which the median, after a short one that is not counted",
        "a pipeline writes and reads every record three times, one query once; its three functions work "
        "side by side, and on a machine with few cores they share these",
        "Kafka is a single broker on the same machine; records travel as JSON",
    ]
