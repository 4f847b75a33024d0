"""Copy all orders that have come since the last time, without the names of customers, and end."""

import argparse
import hashlib
from collections.abc import Callable

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

ORDER = (
    "number bigint, order_id bigint, event_time timestamp, customer bigint, name string, "
    "product bigint, pieces bigint, amount bigint"
)
SALT = b"the shop"


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = (
        SparkSession.builder.appName("nightly copy")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .getOrCreate()
    )
    orders = (
        spark.readStream.schema(ORDER).option("maxFilesPerTrigger", args.files_per_batch).parquet(args.input)
    )
    pseudonym = make_pseudonym(args.iterations)
    copies = orders.select("order_id", pseudonym("name").alias("customer"), "product", "amount")
    query = (
        copies.writeStream.format("parquet")
        .option("path", args.output)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def make_pseudonym(iterations: int) -> Callable[[str], Column]:
    """Return a function that replaces names by a hash that is slow to guess."""

    def hide(name: str) -> str:
        return hashlib.pbkdf2_hmac("sha256", name.encode(), SALT, iterations).hex()[:16]

    return sf.udf(hide, "string", useArrow=True)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--files-per-batch", type=int, default=40)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
