"""Look up the region of every order, and total the orders of each region in windows of ten seconds."""

import argparse
import time
from collections.abc import Callable, Iterator

import pandas as pd

from streaming_app import (
    ORDER,
    parse_options,
    read_order_files,
    replace_batches,
    run_until_stopped,
    start_session,
    total_in_windows,
)

REGIONS = 5


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = start_session("orders by region", args.partitions)
    orders = read_order_files(spark, args.input)
    located = orders.mapInPandas(make_lookup(args.lookup_ms / 1000), f"{ORDER}, region bigint")
    totals = total_in_windows(located, "region")
    query = replace_batches(totals, args.output, args.checkpoint).trigger(processingTime=args.trigger).start()
    run_until_stopped(args.stop_file, query)


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


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(__doc__, "input", "output", "stop-file", trigger="5 seconds", lookup_ms=10.0)


if __name__ == "__main__":
    main()
