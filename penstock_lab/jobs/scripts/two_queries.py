"""Total orders by product every five seconds, and archive them without names every fifteen."""

import argparse

from streaming_app import (
    append_files,
    make_pseudonym,
    parse_options,
    read_order_files,
    replace_batches,
    run_until_stopped,
    start_session,
    total_in_windows,
)


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = start_session("totals and archive", args.partitions)
    orders = read_order_files(spark, args.input)
    totalling = (
        replace_batches(
            total_in_windows(orders, "product"), f"{args.output}/totals", f"{args.checkpoint}/totals"
        )
        .queryName("totals")
        .trigger(processingTime=args.trigger)
        .start()
    )
    pseudonym = make_pseudonym(args.iterations)
    copies = orders.select("order_id", pseudonym("name").alias("customer"), "amount")
    archiving = (
        append_files(copies, f"{args.output}/archive", f"{args.checkpoint}/archive")
        .queryName("archive")
        .trigger(processingTime=args.archive_trigger)
        .start()
    )
    run_until_stopped(args.stop_file, totalling, archiving)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(
        __doc__,
        "input",
        "output",
        "stop-file",
        trigger="5 seconds",
        archive_trigger="15 seconds",
        iterations=300,
    )


if __name__ == "__main__":
    main()
