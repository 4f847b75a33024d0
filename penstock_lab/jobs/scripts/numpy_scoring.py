"""Score every order with an ensemble of small networks."""

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
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
        SparkSession.builder.appName("scores")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .getOrCreate()
    )
    orders = spark.readStream.schema(ORDER).json(args.input)
    scored = orders.mapInPandas(make_scoring(args.model), "order_id bigint, customer bigint, score bigint")
    query = (
        scored.writeStream.format("parquet")
        .option("path", args.output)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("append")
        .trigger(processingTime=args.trigger)
        .start()
    )
    run_until_stopped(query, args.stop_file)


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
    parser.add_argument("--model", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
