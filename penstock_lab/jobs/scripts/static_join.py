"""Find orders whose customer's name is nearly one on a watch list, and count them in windows."""

import argparse
import signal
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
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
        SparkSession.builder.appName("watch list")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .getOrCreate()
    )
    orders = spark.readStream.schema(ORDER).json(args.input)
    watched = spark.read.parquet(args.watch_list)
    similar = sf.levenshtein("name", "watched") <= args.distance
    hits = (
        orders.join(sf.broadcast(watched), similar)
        .withWatermark("event_time", "10 seconds")
        .groupBy(sf.window("event_time", "10 seconds"), "watched")
        .agg(sf.count("*").alias("orders"), sf.sum("amount").alias("amount"))
        .select(sf.col("window.start").alias("window_start"), "watched", "orders", "amount")
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        # a batch that is run again replaces what it wrote before
        batch.write.mode("overwrite").parquet(f"{args.output}/batch={batch_id}")

    query = (
        hits.writeStream.foreachBatch(write)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("update")
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
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--watch-list", required=True)
    parser.add_argument("--distance", type=int, default=2)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
