"""Join payments with the orders of the twenty seconds before them, but for those of blocked customers."""

import argparse

from pyspark.sql import functions as sf

from streaming_app import (
    ROUNDS,
    append_files,
    leave_out_blocked,
    parse_options,
    read_order_files,
    run_until_stopped,
    start_session,
)

PAYMENT = "number bigint, payment_time timestamp, paid_order bigint, paid bigint"


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = start_session("payments", args.partitions)
    orders = leave_out_blocked(read_order_files(spark, args.input), "name", args.rounds)
    payments = spark.readStream.schema(PAYMENT).json(args.payments)
    paid_in_time = sf.expr(
        "order_id = paid_order and payment_time >= event_time "
        "and payment_time <= event_time + interval 20 seconds"
    )
    paid = (
        orders.withWatermark("event_time", "10 seconds")
        .join(payments.drop("number").withWatermark("payment_time", "10 seconds"), paid_in_time)
        .select("order_id", "amount", "payment_time", "paid")
    )
    query = append_files(paid, args.output, args.checkpoint).trigger(processingTime=args.trigger).start()
    run_until_stopped(args.stop_file, query)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    required = ("input", "payments", "output", "stop-file")
    return parse_options(__doc__, *required, rounds=ROUNDS, trigger="5 seconds")


if __name__ == "__main__":
    main()
