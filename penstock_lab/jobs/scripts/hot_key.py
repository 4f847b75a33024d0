"""Keep a running risk of each customer: orders are scored in the order in which they come."""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streaming_app import parse_options, read_order_files, replace_batches, run_until_stopped, start_session

RISK = "orders bigint, risk bigint"


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = start_session("risk by customer", args.partitions)
    orders = read_order_files(spark, args.input)
    risks = orders.groupBy("customer").applyInPandasWithState(
        make_scoring(args.model), f"customer bigint, {RISK}", RISK, "update", GroupStateTimeout.NoTimeout
    )
    query = replace_batches(risks, args.output, args.checkpoint).trigger(processingTime=args.trigger).start()
    run_until_stopped(args.stop_file, query)


def make_scoring(
    model_file: str,
) -> Callable[[Any, Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """Return a function that adds a customer's orders to what is known of them."""
    with np.load(model_file) as saved:
        embedding, hidden, output = saved["embedding"], saved["hidden"], saved["output"]

    def score(product: int, pieces: int) -> int:
        return int((np.maximum(embedding[product] * pieces @ hidden, 0) * output).sum())

    def add_orders(key: Any, batches: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        count, risk = state.get if state.exists else (0, 0)
        for orders in batches:
            for product, pieces in zip(orders["product"], orders["pieces"], strict=True):
                count, risk = count + 1, risk + score(product, pieces)
        state.update((count, risk))
        yield pd.DataFrame({"customer": [key[0]], "orders": [count], "risk": [risk]})

    return add_orders


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(__doc__, "input", "output", "model", "stop-file", trigger="5 seconds")


if __name__ == "__main__":
    main()
