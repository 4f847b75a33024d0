"""Look up the region of every order, and total the orders of each region in windows of ten seconds."""

import argparse
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

ORDER = (
    "number bigint, order_id bigint, event_time timestamp, customer bigint, name string, "
    "product bigint, pieces bigint, amount bigint"
)
REGIONS = 5


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = (
        SparkSession.builder.appName("orders by region")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .getOrCreate()
    )
    orders = spark.readStream.schema(ORDER).json(args.input)
    located = orders.mapInPandas(make_lookup(args.lookup_ms / 1000), f"{ORDER}, region bigint")
    totals = (
        located.withWatermark("event_time", "10 seconds")
        .groupBy(sf.window("event_time", "10 seconds"), "region")
        .agg(sf.count("*").alias("orders"), sf.sum("amount").alias("amount"))
        .select(sf.col("window.start").alias("window_start"), "region", "orders", "amount")
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        # a batch that is run again replaces what it wrote before
        batch.write.mode("overwrite").parquet(f"{args.output}/batch={batch_id}")

    query = (
        totals.writeStream.foreachBatch(write)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("update")
        .trigger(processingTime=args.trigger)
        .start()
    )
    run_until_stopped(query, args.stop_file)


def make_lookup(seconds: float) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Return a step that adds the region of each order's customer."""

    def find_region(customer: int) -> int:
        # stands for a call to the customer service, which answers after so long
        time.sleep(seconds)
        return customer % REGIONS

    def add_regions(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for orders in batches:
            yield orders.assign(region=[find_region(customer) for customer in orders["customer"]])

    return add_regions


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
    parser.add_argument("--lookup-ms", type=float, default=10.0)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
