"""Copy orders from a topic with four partitions, without the names of customers."""

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
    spark = start_session("copy of orders", args.partitions)
    pseudonym = make_pseudonym(args.iterations)
    orders = read_order_topic(spark, args.brokers, args.topic)
    copies = orders.select("order_id", pseudonym("name").alias("customer"), "amount")
    query = append_files(copies, args.output, args.checkpoint).trigger(processingTime=args.trigger).start()
    run_until_stopped(args.stop_file, query)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(
        __doc__, "brokers", "topic", "output", "stop-file", trigger="5 seconds", iterations=2000
    )


if __name__ == "__main__":
    main()
