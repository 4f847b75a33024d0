"""Charge every order once, however often it is sent; one batch follows the other."""

import argparse
import time
from collections.abc import Callable, Iterator

import pandas as pd

from streaming_app import append_files, parse_options, read_order_files, run_until_stopped, start_session


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = start_session("charges", args.partitions)
    orders = read_order_files(spark, args.input)
    once = orders.withWatermark("event_time", "10 seconds").dropDuplicates(["order_id", "event_time"])
    charges = once.mapInPandas(
        make_charge(args.call_ms / 1000), "order_id bigint, amount bigint, receipt bigint"
    )
    query = append_files(charges, args.output, args.checkpoint).start()
    run_until_stopped(args.stop_file, query)


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


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(__doc__, "input", "output", "stop-file", call_ms=4.0)


if __name__ == "__main__":
    main()
