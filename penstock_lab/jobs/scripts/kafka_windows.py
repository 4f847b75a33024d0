"""Count the orders of each product in windows of ten seconds: JSON from one Kafka topic into another.

Orders of blocked customers are left out.
"""

import argparse

from pyspark.sql import functions as sf

from streaming_app import (
    ROUNDS,
    leave_out_blocked,
    parse_options,
    read_order_topic,
    run_until_stopped,
    start_session,
    total_in_windows,
)


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = start_session("orders by product", args.partitions)
    orders = leave_out_blocked(read_order_topic(spark, args.brokers, args.topic), "name", args.rounds)
    counts = total_in_windows(orders, "product")
    start = sf.unix_millis("window_start").alias("window_start")
    messages = counts.select(
        sf.col("product").cast("string").alias("key"),
        sf.to_json(sf.struct(start, "product", "orders", "amount")).alias("value"),
    )
    query = (
        messages.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", args.brokers)
        .option("topic", args.output_topic)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("append")
        .trigger(processingTime=args.trigger)
        .start()
    )
    run_until_stopped(args.stop_file, query)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    required = ("brokers", "topic", "output-topic", "stop-file")
    return parse_options(__doc__, *required, rounds=ROUNDS, trigger="5 seconds")


if __name__ == "__main__":
    main()
