"""Copy orders from a topic with four partitions, without the names of customers."""

import argparse
import hashlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

ORDER = (
    "number bigint, order_id bigint, event_time timestamp, customer bigint, name string, "
    "product bigint, pieces bigint, amount bigint"
)
SALT = b"the shop"


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = (
        SparkSession.builder.appName("copy of orders")
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
    pseudonym = make_pseudonym(args.iterations)
    copies = orders.select("order.*").select("order_id", pseudonym("name").alias("customer"), "amount")
    query = (
        copies.writeStream.format("parquet")
        .option("path", args.output)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("append")
        .trigger(processingTime=args.trigger)
        .start()
    )
    run_until_stopped(query, args.stop_file)


def make_pseudonym(iterations: int) -> Callable[[str], Column]:
    """Return a function that replaces names by a hash that is slow to guess."""

    def hide(name: str) -> str:
        return hashlib.pbkdf2_hmac("sha256", name.encode(), SALT, iterations).hex()[:16]

    return sf.udf(hide, "string", useArrow=True)


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
    parser.add_argument("--output", required=True)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
