"""Keep a running risk of each customer: orders are scored in the order in which they come."""

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

ORDER = (
    "number bigint, order_id bigint, event_time timestamp, customer bigint, name string, "
    "product bigint, pieces bigint, amount bigint"
)
RISK = "orders bigint, risk bigint"


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = (
        SparkSession.builder.appName("risk by customer")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .getOrCreate()
    )
    orders = spark.readStream.schema(ORDER).json(args.input)
    risks = orders.groupBy("customer").applyInPandasWithState(
        make_scoring(args.model), f"customer bigint, {RISK}", RISK, "update", GroupStateTimeout.NoTimeout
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        # a batch that is run again replaces what it wrote before
        batch.write.mode("overwrite").parquet(f"{args.output}/batch={batch_id}")

    query = (
        risks.writeStream.foreachBatch(write)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("update")
        .trigger(processingTime=args.trigger)
        .start()
    )
    run_until_stopped(query, args.stop_file)


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
