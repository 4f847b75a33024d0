"""Charge every order once, however often it is sent; one batch follows the other."""

import argparse
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

ORDER = (
    "number bigint, order_id bigint, event_time timestamp, customer bigint, name string, "
    "product bigint, pieces bigint, amount bigint"
)


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = (
        SparkSession.builder.appName("charges")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .getOrCreate()
    )
    orders = spark.readStream.schema(ORDER).json(args.input)
    once = orders.withWatermark("event_time", "10 seconds").dropDuplicates(["order_id", "event_time"])
    charges = once.mapInPandas(
        make_charge(args.call_ms / 1000), "order_id bigint, amount bigint, receipt bigint"
    )
    query = (
        charges.writeStream.format("parquet")
        .option("path", args.output)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("append")
        .start()
    )
    run_until_stopped(query, args.stop_file)


def make_charge(seconds: float) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Return a step that charges orders and keeps the receipts."""

    def charge(order_id: int, amount: int) -> int:
        # stands for a call to the bank, which answers after so long
        time.sleep(seconds)
        return 7 * order_id + amount

    def charge_orders(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for orders in batches:
            pairs = zip(orders["order_id"], orders["amount"], strict=True)
            charged = orders[["order_id", "amount"]]
            yield charged.assign(receipt=[charge(order_id, amount) for order_id, amount in pairs])

    return charge_orders


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
    parser.add_argument("--call-ms", type=float, default=4.0)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
