"""Score every order with an ensemble of small networks."""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from streaming_app import append_files, parse_options, read_order_files, run_until_stopped, start_session


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = start_session("scores", args.partitions)
    orders = read_order_files(spark, args.input)
    scored = orders.mapInPandas(make_scoring(args.model), "order_id bigint, customer bigint, score bigint")
    query = append_files(scored, args.output, args.checkpoint).trigger(processingTime=args.trigger).start()
    run_until_stopped(args.stop_file, query)


def make_scoring(model_file: str) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Return a step that scores orders with an ensemble of networks."""
    with np.load(model_file) as saved:
        embedding, hidden, output = saved["embedding"], saved["hidden"], saved["output"]

    def score_orders(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for orders in batches:
            features = embedding[orders["product"]] * orders[["pieces"]].to_numpy()
            scores = np.zeros(len(orders))
            for first, second in zip(hidden, output, strict=True):
                scores += np.maximum(features @ first, 0) @ second
            yield orders[["order_id", "customer"]].assign(score=scores.astype(np.int64))

    return score_orders


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(__doc__, "input", "output", "model", "stop-file", trigger="5 seconds")


if __name__ == "__main__":
    main()
