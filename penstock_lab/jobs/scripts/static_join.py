"""Find orders whose customer's name is nearly one on a watch list, and count them in windows."""

import argparse

from pyspark.sql import functions as sf

from streaming_app import (
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
    spark = start_session("watch list", args.partitions)
    watched = spark.read.parquet(args.watch_list)
    similar = sf.levenshtein("name", "watched") <= args.distance
    orders = read_order_files(spark, args.input)
    hits = total_in_windows(orders.join(sf.broadcast(watched), similar), "watched")
    query = replace_batches(hits, args.output, args.checkpoint).trigger(processingTime=args.trigger).start()
    run_until_stopped(args.stop_file, query)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(
        __doc__, "input", "output", "watch-list", "stop-file", trigger="5 seconds", distance=2
    )


if __name__ == "__main__":
    main()
