"""Keep each order of an at-least-once topic once, without the customer's name."""

import argparse

from streaming_app import (
    append_files,
    make_pseudonym,
    parse_options,
    read_order_topic,
    run_until_stopped,
    start_session,
)


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = start_session("orders, once each", args.partitions)
    orders = read_order_topic(spark, args.brokers, args.topic)
    once = orders.withWatermark("event_time", "10 seconds").dropDuplicatesWithinWatermark(["order_id"])
    pseudonym = make_pseudonym(args.iterations)
    kept = once.select("order_id", pseudonym("name").alias("customer"), "amount")
    query = append_files(kept, args.output, args.checkpoint).trigger(processingTime=args.trigger).start()
    run_until_stopped(args.stop_file, query)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(
        __doc__, "brokers", "topic", "output", "stop-file", trigger="5 seconds", iterations=300
    )


if __name__ == "__main__":
    main()
