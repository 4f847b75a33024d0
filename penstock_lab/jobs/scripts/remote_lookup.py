"""Ask a service for the credit limit of every order's customer, and keep orders with their limits."""

import argparse
import http.client
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
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
        SparkSession.builder.appName("credit limits")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .getOrCreate()
    )
    orders = spark.readStream.schema(ORDER).json(args.input)
    checked = orders.mapInPandas(make_lookup(args.service), "order_id bigint, amount bigint, credit bigint")
    query = (
        checked.writeStream.format("parquet")
        .option("path", args.output)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("append")
        .trigger(processingTime=args.trigger)
        .start()
    )
    run_until_stopped(query, args.stop_file)


def make_lookup(service: str) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Return a step that asks the service about each order's customer, one after the other."""

    def find_limit(connection: http.client.HTTPConnection, customer: int) -> int:
        connection.request("GET", f"/customers/{customer}")
        return int(json.load(connection.getresponse())["credit"])

    def add_limits(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        with closing(http.client.HTTPConnection(service, timeout=60)) as connection:
            for orders in batches:
                limits = [find_limit(connection, customer) for customer in orders["customer"]]
                yield orders[["order_id", "amount"]].assign(credit=limits)

    return add_limits


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
    parser.add_argument("--service", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
