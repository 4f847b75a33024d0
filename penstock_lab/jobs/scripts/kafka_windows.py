"""Count the orders of each product in windows of ten seconds: JSON from one Kafka topic into another.

Orders of blocked customers are left out.
"""

import argparse
import signal
import threading
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

ORDER = (
    "number bigint, order_id bigint, event_time timestamp, customer bigint, name string, "
    "product bigint, pieces bigint, amount bigint"
)
BLOCKED = ("0" * 64,)
"""Fingerprints of customers whose orders are left out."""


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = (
        SparkSession.builder.appName("orders by product")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .getOrCreate()
    )
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.brokers)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    orders = records.select(sf.from_json(sf.col("value").cast("string"), ORDER).alias("order"))
    allowed = ~make_fingerprint("name", args.rounds).isin(*BLOCKED)
    counts = (
        orders.select("order.*")
        .where(allowed)
        .withWatermark("event_time", "10 seconds")
        .groupBy(sf.window("event_time", "10 seconds"), "product")
        .agg(sf.count("*").alias("orders"), sf.sum("amount").alias("amount"))
    )
    start = sf.unix_millis("window.start").alias("window_start")
    messages = counts.select(
        sf.col("product").cast("string").alias("key"),
        sf.to_json(sf.struct(start, "product", "orders", "amount")).alias("value"),
    )
    query = (
        messages.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", args.brokers)
        .option("topic", args.output_topic)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("append")
        .trigger(processingTime=args.trigger)
        .start()
    )
    run_until_stopped(query, args.stop_file)


def make_fingerprint(column: str, rounds: int) -> Column:
    """Return a hash that is slow to guess, by Spark's own functions."""
    first = sf.sha2(sf.col(column).cast("string"), 256)
    return sf.aggregate(sf.sequence(sf.lit(1), sf.lit(rounds)), first, lambda seen, _: sf.sha2(seen, 256))


def run_until_stopped(query: StreamingQuery, stop_file: Path) -> None:
    """Run until SIGTERM or the stop file comes, then finish what has arrived."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while query.isActive and not stopping.is_set() and not stop_file.exists():
        query.awaitTermination(1)
    query.processAllAvailable()
    query.stop()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output-topic", required=True)
    parser.add_argument("--rounds", type=int, default=200, help="of the hash by which customers are blocked")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
