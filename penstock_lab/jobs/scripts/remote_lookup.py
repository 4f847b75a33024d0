"""Ask a service for the credit limit of every order's customer, and keep orders with their limits."""

import argparse
import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing

import pandas as pd

from streaming_app import append_files, parse_options, read_order_files, run_until_stopped, start_session


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = start_session("credit limits", args.partitions)
    orders = read_order_files(spark, args.input)
    checked = orders.mapInPandas(make_lookup(args.service), "order_id bigint, amount bigint, credit bigint")
    query = append_files(checked, args.output, args.checkpoint).trigger(processingTime=args.trigger).start()
    run_until_stopped(args.stop_file, query)


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


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(__doc__, "input", "output", "service", "stop-file", trigger="5 seconds")


if __name__ == "__main__":
    main()
