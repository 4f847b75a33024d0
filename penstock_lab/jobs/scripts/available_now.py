"""Copy all orders that have come since the last time, without the names of customers, and end."""

import argparse

from streaming_app import ORDER, append_files, make_pseudonym, parse_options, start_session


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = start_session("nightly copy", args.partitions)
    orders = (
        spark.readStream.schema(ORDER).option("maxFilesPerTrigger", args.files_per_batch).parquet(args.input)
    )
    pseudonym = make_pseudonym(args.iterations)
    copies = orders.select("order_id", pseudonym("name").alias("customer"), "product", "amount")
    query = append_files(copies, args.output, args.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(__doc__, "input", "output", files_per_batch=40, iterations=300)


if __name__ == "__main__":
    main()
