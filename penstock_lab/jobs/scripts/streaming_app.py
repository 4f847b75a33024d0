"""Shared parts of the shop's streaming jobs: options, session, orders, sinks, and how a job ends."""

import argparse
import hashlib
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

ORDER = (
    "number bigint, order_id bigint, event_time timestamp, customer bigint, name string, "
    "product bigint, pieces bigint, amount bigint"
)
SALT = b"the shop"
BLOCKED = ("0" * 64,)
"""Fingerprints of customers who are left out."""
ROUNDS = 200
"""Of the hash by which they are told."""


def parse_options(description: str | None, *required: str, **defaults: float | str) -> argparse.Namespace:
    """Read the command line: options that must be given, and options with a default."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("checkpoint", *required):
        parser.add_argument(f"--{name}", required=True)
    for name, value in {"partitions": 8, **defaults}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    return parser.parse_args()


def start_session(name: str, partitions: int, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark with so many partitions after a shuffle."""
    builder = SparkSession.builder.appName(name).config("spark.sql.shuffle.partitions", partitions)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def read_order_files(spark: SparkSession, directory: str) -> DataFrame:
    """Read orders from files of JSON as they come."""
    return spark.readStream.schema(ORDER).json(directory)


def read_order_topic(spark: SparkSession, brokers: str, topic: str) -> DataFrame:
    """Read orders from records of JSON in a Kafka topic, from its beginning."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    orders = records.select(sf.from_json(sf.col("value").cast("string"), ORDER).alias("order"))
    return orders.select("order.*")


def leave_out_blocked(rows: DataFrame, column: str, rounds: int) -> DataFrame:
    """Leave out the rows of blocked customers, told by a hash of Spark's own that is slow to guess."""
    first = sf.sha2(sf.col(column).cast("string"), 256)
    steps = sf.sequence(sf.lit(1), sf.lit(rounds))
    return rows.where(~sf.aggregate(steps, first, lambda seen, _: sf.sha2(seen, 256)).isin(*BLOCKED))


def make_pseudonym(iterations: int) -> Callable[[str], Column]:
    """Return a function of a column that replaces names by a hash that is slow to guess."""
    return sf.udf(make_hash(iterations), "string", useArrow=True)


def make_hash(iterations: int) -> Callable[[str], str]:
    """Return a slow hash of names; executors get it whole, because it is made here and has no name there."""

    def hide(name: str) -> str:
        return hashlib.pbkdf2_hmac("sha256", name.encode(), SALT, iterations).hex()[:16]

    return hide


def total_in_windows(orders: DataFrame, key: str) -> DataFrame:
    """Count and total the orders of each key in windows of ten seconds."""
    return (
        orders.withWatermark("event_time", "10 seconds")
        .groupBy(sf.window("event_time", "10 seconds"), key)
        .agg(sf.count("*").alias("orders"), sf.sum("amount").alias("amount"))
        .select(sf.col("window.start").alias("window_start"), key, "orders", "amount")
    )


def append_files(rows: DataFrame, output: str, checkpoint: str) -> DataStreamWriter:
    """Return a writer that appends rows to files of Parquet."""
    writer = rows.writeStream.format("parquet").option("path", output)
    return writer.option("checkpointLocation", checkpoint).outputMode("append")


def replace_batches(rows: DataFrame, output: str, checkpoint: str) -> DataStreamWriter:
    """Return a writer of one directory a batch: a batch that is run again replaces what it wrote before."""

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(f"{output}/batch={batch_id}")

    return rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).outputMode("update")


def run_until_stopped(stop_file: str, *queries: StreamingQuery) -> None:
    """Run until SIGTERM or the stop file comes, then finish what has arrived."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while all(query.isActive for query in queries) and not stopping.is_set() and not Path(stop_file).exists():
        queries[0].awaitTermination(1)
    for query in queries:
        query.processAllAvailable()
        query.stop()
