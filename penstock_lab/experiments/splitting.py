"""The cost of splitting a query into functions: three transforms as a pipeline and as one hand-written query.

All systems read the same records and end with the same ones: a pipeline of three functions, the same fused,
and one query, each on Kafka topics and on file topics. Records wait in the first topic before anything
starts; the time counts from the begin of the first batch to the end of the last, by Spark's own reports.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import ActionFailed, Unsupported
from penstock.observe.progress import BatchProgress, parse_progress
from penstock.pipeline import Pipeline, files, kafka
from penstock.pipeline.spark_topics import read_topic
from penstock.pipeline.topics import Files, Kafka, Location, Topic
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row, tell_settings
from penstock_lab.ground.spark_cluster import ClusterShape, cluster, scratch_directory

if TYPE_CHECKING:
    from penstock_lab.ground.kafka_broker import KafkaBroker

CONF = {"spark.scheduler.mode": "FAIR", "spark.sql.shuffle.partitions": "2"}
SHAPE = ClusterShape(2, 2, 768, name="penstock bench kafka", log_level="OFF", conf=CONF)
SCHEMA = "number bigint, text string"
INSTANCES = 2
PATIENCE_SECONDS = 280
ONE, SPLIT, FUSED = "one query", "pipeline", "fused pipeline"
FUSE = {SPLIT: "never", FUSED: "always"}
ORDER = tuple(f"{way}, {place}" for place in ("files", "kafka") for way in (ONE, SPLIT, FUSED))
Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class SplitAmount:
    """Records in all and in each batch, and how often all is done."""

    records: int
    per_batch: int
    rounds: int

    @property
    def kept(self) -> int:
        """Records that come through: `clean` drops a tenth."""
        return self.records - len(range(3, self.records, 10))


FULL, QUICK = SplitAmount(200_000, 25_000, 3), SplitAmount(40_000, 10_000, 1)
WARM_UP = SplitAmount(4_000, 2_000, 1)


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
TOPICS = ("raw", "cleaned", "enriched", "short")


def run(extent: Extent, progress: Progress) -> Measurement:
    """Run all systems in turn, after a short pass of each; quick has fewer records."""
    amount = QUICK if extent.quick else FULL
    rates: dict[str, list[float]] = {system: [] for system in ORDER}
    shape = add_connector(SHAPE)
    with cluster(shape) as spark, scratch_directory() as scratch, start_broker(scratch) as broker:
        for number, each in enumerate((WARM_UP, *[amount] * amount.rounds)):
            for system in ORDER:
                seconds = _measure(spark, broker, scratch / f"{number}", system, each)
                progress(f"{system}: {each.records} records in {seconds:.1f} s")
                if each is not WARM_UP:
                    rates[system].append(each.records / seconds)
    rows = make_rows(rates)
    return Measurement(rows, summarise_costs(rows), describe_method(amount))


def add_connector(shape: ClusterShape) -> ClusterShape:
    """Put Kafka's connector on the class path: Spark's sink works only with it there from the start."""
    try:
        from penstock_lab.ground.kafka_broker import connector_jars
    except ImportError:
        raise Unsupported("this benchmark needs the package confluent-kafka") from None
    jars = ":".join(map(str, connector_jars()))
    paths = {f"spark.{side}.extraClassPath": jars for side in ("driver", "executor")}
    return replace(shape, conf={**shape.conf, **paths})


@contextmanager
def start_broker(scratch: Path) -> Iterator[KafkaBroker]:
    """Run a broker for the length of a `with`."""
    from penstock_lab.ground.kafka_broker import KafkaBroker

    broker = KafkaBroker(scratch / "broker")
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def _measure(
    spark: SparkSession, broker: KafkaBroker, scratch: Path, system: str, amount: SplitAmount
) -> float:
    """Time one system, and check that all records came through."""
    root = scratch / system.replace(", ", "-").replace(" ", "-")
    place: Location
    if system.endswith("kafka"):
        prefix = f"{scratch.name}-{root.name}-"
        place = kafka(broker.address, records_per_batch=amount.per_batch, prefix=prefix)
        _fill_kafka(broker, place, amount.records)
    else:
        place = files(str(root), files_per_batch=INSTANCES)
        fill_files(root / "raw", amount)
    way = system.partition(", ")[0]
    if way == ONE:
        seconds = _run_single(spark, place, root, amount)
    else:
        seconds = _run_pipeline(spark, place, root, amount, choose_settings(way))
    found = count_records(spark, place)
    if found != amount.kept:
        raise ActionFailed(f"{system}: {found} records came through, not {amount.kept}")
    return seconds


def build_pipeline(place: Location) -> Pipeline:
    """Build raw → clean → cleaned → enrich → enriched → shorten → short."""
    pipeline = Pipeline("split", topics=place)
    pipeline.topic("raw", schema=SCHEMA)
    shared: dict[str, Any] = {"schema": SCHEMA, "takes": "dataframe", "parallelism": INSTANCES}
    for (name, transform), (reads, writes) in zip(TRANSFORMS.items(), pairwise(TOPICS), strict=True):
        pipeline.add(transform, name=name, reads=reads, writes=writes, **shared)
    return pipeline


def choose_settings(way: str) -> dict[str, object]:
    """Return the settings of a pipeline: nothing is scaled, and its functions are fused from the start."""
    return {"mode": "observe", "control_socket": False, "fuse": FUSE[way]}


def _run_pipeline(
    spark: SparkSession, place: Location, root: Path, amount: SplitAmount, chosen: Mapping[str, object]
) -> float:
    root.mkdir(parents=True, exist_ok=True)
    settings = {**chosen, "journal": str(root / "journal.db")}
    checkpoints = str(root / "checkpoints")
    handle = build_pipeline(place).run(spark, settings=settings, checkpoints=checkpoints, trigger="0s")
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while handle.status()["functions"]["shorten"]["records_read"] < amount.kept:
            handle.wait(0.2)
            if time.monotonic() > deadline:
                raise ActionFailed(f"the pipeline has not served all within {PATIENCE_SECONDS} s")
    finally:
        handle.stop()
    batches = [batch for name in TRANSFORMS for batch in _list_batches(handle.queries[name].query)]
    return max(batch.end for batch in batches) - min(batch.start for batch in batches)


def _run_single(spark: SparkSession, place: Location, root: Path, amount: SplitAmount) -> float:
    """Run the transforms as a user would write them by hand, into the sink of the same kind."""
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
    batches = _list_batches(query)
    return batches[-1].end - batches[0].start


def _list_batches(query: StreamingQuery) -> list[BatchProgress]:
    batches = [parse_progress(json.loads(report.json)) for report in query.recentProgress]
    return [batch for batch in batches if batch.executed]


def make_texts(first: int, end: int) -> pa.Table:
    """Make records of about 60 bytes."""
    numbers = range(first, end)
    return pa.table(
        {
            "number": pa.array(numbers, pa.int64()),
            "text": [f"The Record {number:09d} And What It SAYS" for number in numbers],
        }
    )


def fill_files(topic: Path, amount: SplitAmount) -> None:
    """Write the records into files, of which a batch reads as many as there are instances."""
    topic.mkdir(parents=True)
    each = amount.per_batch // INSTANCES
    for first in range(0, amount.records, each):
        pq.write_table(make_texts(first, min(first + each, amount.records)), topic / f"{first:09d}.parquet")


def _fill_kafka(broker: KafkaBroker, place: Kafka, records: int) -> None:
    from confluent_kafka import Producer

    names = (*TOPICS, *(f"{name}.dead" for name in TRANSFORMS))
    broker.create(*(place.prefix + name for name in names), partitions=INSTANCES)
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20, "log_level": 0})
    for number, record in enumerate(make_texts(0, records).to_pylist()):
        producer.produce(
            f"{place.prefix}raw", value=json.dumps(record).encode(), partition=number % INSTANCES
        )
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


def count_records(spark: SparkSession, place: Location) -> int:
    """Count the different records in the last topic."""
    if isinstance(place, Kafka):
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", place.servers)
        frame = reader.option("subscribe", f"{place.prefix}short").load().select("value")
    else:
        assert isinstance(place, Files)
        reader = spark.read.option("recursiveFileLookup", "true").schema(SCHEMA)
        frame = reader.parquet(f"{place.root}/short").select("number")
    return frame.distinct().count()


def make_rows(rates: Mapping[str, Sequence[float]]) -> list[Row]:
    """Reduce each system to a row; the ratio says how many times slower it is than one query."""
    median = {system: statistics.median(found) for system, found in rates.items() if found}
    rows = []
    for system, rate in median.items():
        way, _, case = system.rpartition(", ")
        alone = median.get(f"{ONE}, {case}")
        rows.append(
            {
                "case": case,
                "system": system,
                "records_per_second": round(rate),
                "cost_ratio": round(alone / rate, 2) if alone else None,
                "rounds": len(rates[system]),
                "settings": tell_settings(choose_settings(way)) if way in FUSE else "",
            }
        )
    return rows


def summarise_costs(rows: list[Row]) -> dict[str, float]:
    """Return rates, and the cost of splitting."""
    found: dict[str, float] = {}
    for row in rows:
        name = row["system"].replace(", ", "_").replace(" ", "_")
        found[f"{name}_records_per_second"] = row["records_per_second"]
        if not row["system"].startswith(ONE) and row["cost_ratio"] is not None:
            found[f"{name}_cost_ratio"] = row["cost_ratio"]
    return found


def describe_method(amount: SplitAmount) -> list[str]:
    """Tell how the figures were measured."""
    return [
        f"{amount.records:,} records of about 60 bytes in batches of up to {amount.per_batch:,}, "
        f"{INSTANCES} instances of each function, {INSTANCES} partitions of each topic; "
        f"rounds: {amount.rounds}, of which the median, after a short one that is not counted",
        "a pipeline writes and reads every record three times, one query once; its three functions work "
        "side by side, and on a machine with few cores they share these",
        f"a fused pipeline writes and reads every record once, with the {3 * INSTANCES} instances that its "
        "functions have together; it counts its records once more, as every pipeline does",
        "Kafka is a single broker on the same machine; records travel as JSON",
    ]
