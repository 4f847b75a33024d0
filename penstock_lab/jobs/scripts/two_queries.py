"""Total orders by product every five seconds, and archive them without names every fifteen."""

import argparse
import hashlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
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
        SparkSession.builder.appName("totals and archive")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .getOrCreate()
    )
    orders = spark.readStream.schema(ORDER).json(args.input)
    totals = (
        orders.withWatermark("event_time", "10 seconds")
        .groupBy(sf.window("event_time", "10 seconds"), "product")
        .agg(sf.count("*").alias("orders"), sf.sum("amount").alias("amount"))
        .select(sf.col("window.start").alias("window_start"), "product", "orders", "amount")
    )

    def write_totals(batch: DataFrame, batch_id: int) -> None:
        # a batch that is run again replaces what it wrote before
        batch.write.mode("overwrite").parquet(f"{args.output}/totals/batch={batch_id}")

    totalling = (
        totals.writeStream.foreachBatch(write_totals)
        .queryName("totals")
        .option("checkpointLocation", f"{args.checkpoint}/totals")
        .outputMode("update")
        .trigger(processingTime=args.trigger)
        .start()
    )
    pseudonym = make_pseudonym(args.iterations)
    archiving = (
        orders.select("order_id", pseudonym("name").alias("customer"), "amount")
        .writeStream.format("parquet")
        .queryName("archive")
        .option("path", f"{args.output}/archive")
        .option("checkpointLocation", f"{args.checkpoint}/archive")
        .trigger(processingTime=args.archive_trigger)
        .start()
    )
    run_until_stopped([totalling, archiving], args.stop_file)


def make_pseudonym(iterations: int) -> Callable[[str], Column]:
    """Return a function that replaces names by a hash that is slow to guess."""

    def hide(name: str) -> str:
        return hashlib.pbkdf2_hmac("sha256", name.encode(), SALT, iterations).hex()[:16]

    return sf.udf(hide, "string", useArrow=True)


def run_until_stopped(queries: list[StreamingQuery], stop_file: Path) -> None:
    """Run until SIGTERM or the stop file comes, then finish what has arrived."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while all(query.isActive for query in queries) and not stopping.is_set() and not stop_file.exists():
        queries[0].awaitTermination(1)
    for query in queries:
        query.processAllAvailable()
        query.stop()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--archive-trigger", default="15 seconds")
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
