"""Total what each customer spends in windows of ten seconds, from few large files, without their names."""

import argparse

from streaming_app import (
    ORDER,
    append_files,
    make_pseudonym,
    parse_options,
    run_until_stopped,
    start_session,
    total_in_windows,
)


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    settings = {"spark.sql.files.maxPartitionBytes": args.split}
    spark = start_session("spending by customer", args.partitions, settings)
    orders = (
        spark.readStream.schema(ORDER).option("maxFilesPerTrigger", args.files_per_batch).json(args.input)
    )
    pseudonym = make_pseudonym(args.iterations)
    totals = total_in_windows(orders.withColumn("customer", pseudonym("name")), "customer")
    query = append_files(totals, args.output, args.checkpoint).trigger(processingTime=args.trigger).start()
    run_until_stopped(args.stop_file, query)


def parse_arguments() -> argparse.Namespace:
    """Read the command line; `split` is how many bytes a task reads at most."""
    return parse_options(
        __doc__,
        "input",
        "output",
        "stop-file",
        trigger="5 seconds",
        files_per_batch=1,
        split="256k",
        iterations=300,
    )


if __name__ == "__main__":
    main()
