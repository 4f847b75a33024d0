"""Count the orders of each product in windows of ten seconds: JSON from one Kafka topic into another."""

import argparse
import signal
import threading
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

ORDER = (
    "number bigint, order_id bigint, event_time timestamp, customer bigint, name string, "
    "product bigint, pieces bigint, amount bigint"
)


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
    counts = (
        orders.select("order.*")
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
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
