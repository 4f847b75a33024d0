"""Keep the last order of each customer in SQLite, the counts of each batch, and all orders as Parquet."""

import argparse
import hashlib
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

ORDER = (
    "number bigint, order_id bigint, event_time timestamp, customer bigint, name string, "
    "product bigint, pieces bigint, amount bigint"
)
SALT = b"the shop"
TABLES = """
create table if not exists customers (customer text primary key, number integer, amount integer);
create table if not exists batches
    (batch integer, product integer, orders integer, primary key (batch, product));
"""
UPSERT = """
insert into customers values (?, ?, ?)
on conflict (customer) do update set number = excluded.number, amount = excluded.amount
where excluded.number > customers.number
"""


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = (
        SparkSession.builder.appName("orders into three places")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .getOrCreate()
    )
    orders = spark.readStream.schema(ORDER).json(args.input)
    pseudonym = make_pseudonym(args.iterations)
    safe = orders.withColumn("customer", pseudonym("name")).drop("name")

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        newest = batch.groupBy("customer").agg(
            sf.max_by(sf.struct("number", "amount"), "number").alias("last")
        )
        upserts = [tuple(row) for row in newest.select("customer", "last.number", "last.amount").collect()]
        counts = batch.groupBy("product").count().collect()
        save(args.database, batch_id, upserts, [(row["product"], row["count"]) for row in counts])
        batch.write.mode("overwrite").parquet(f"{args.output}/batch={batch_id}")
        batch.unpersist()

    query = (
        safe.writeStream.foreachBatch(write)
        .option("checkpointLocation", args.checkpoint)
        .trigger(processingTime=args.trigger)
        .start()
    )
    run_until_stopped(query, args.stop_file)


def save(
    database: str, batch_id: int, upserts: list[tuple[str, int, int]], counts: list[tuple[int, int]]
) -> None:
    """Write one batch into the database; writing it again changes nothing."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript(TABLES)
        connection.executemany(UPSERT, upserts)
        rows = [(batch_id, product, orders) for product, orders in counts]
        connection.executemany("insert or replace into batches values (?, ?, ?)", rows)


def make_pseudonym(iterations: int) -> Callable[[str], Column]:
    """Return a function that replaces names by a hash that is slow to guess."""

    def hide(name: str) -> str:
        return hashlib.pbkdf2_hmac("sha256", name.encode(), SALT, iterations).hex()[:16]

    return sf.udf(hide, "string", useArrow=True)


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
    parser.add_argument("--output", required=True)
    parser.add_argument("--database", required=True)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
