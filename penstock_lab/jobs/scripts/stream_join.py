"""Join payments with the orders of the twenty seconds before them, but for those of blocked customers."""

import argparse
import signal
import threading
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

ORDER = (
    "number bigint, order_id bigint, event_time timestamp, customer bigint, name string, "
    "product bigint, pieces bigint, amount bigint"
)
PAYMENT = "number bigint, payment_time timestamp, paid_order bigint, paid bigint"
BLOCKED = ("0" * 64,)
"""Fingerprints of customers whose orders are left out."""


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = (
        SparkSession.builder.appName("payments")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .getOrCreate()
    )
    orders = spark.readStream.schema(ORDER).json(args.input)
    payments = spark.readStream.schema(PAYMENT).json(args.payments)
    paid_in_time = sf.expr(
        "order_id = paid_order and payment_time >= event_time "
        "and payment_time <= event_time + interval 20 seconds"
    )
    paid = (
        orders.where(~make_fingerprint("name", args.rounds).isin(*BLOCKED))
        .withWatermark("event_time", "10 seconds")
        .join(payments.drop("number").withWatermark("payment_time", "10 seconds"), paid_in_time)
        .select("order_id", "amount", "payment_time", "paid")
    )
    query = (
        paid.writeStream.format("parquet")
        .option("path", args.output)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("append")
        .trigger(processingTime=args.trigger)
        .start()
    )
    run_until_stopped(query, args.stop_file)


def make_fingerprint(column: str, rounds: int) -> Column:
    """Return a hash that is slow to guess, by Spark's own functions."""
    first = sf.sha2(sf.col(column).cast("string"), 256)
    return sf.aggregate(sf.sequence(sf.lit(1), sf.lit(rounds)), first, lambda seen, _: sf.sha2(seen, 256))


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
    parser.add_argument("--payments", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--rounds", type=int, default=200, help="of the hash by which customers are blocked")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
