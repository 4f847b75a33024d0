"""Keep the last order of each customer in SQLite, the counts of each batch, and all orders as Parquet."""

import argparse
import sqlite3
from contextlib import closing

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from streaming_app import make_pseudonym, parse_options, read_order_files, run_until_stopped, start_session

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
    spark = start_session("orders into three places", args.partitions)
    orders = read_order_files(spark, args.input)
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
    run_until_stopped(args.stop_file, query)


def save(
    database: str, batch_id: int, upserts: list[tuple[str, int, int]], counts: list[tuple[int, int]]
) -> None:
    """Write one batch into the database; writing it again changes nothing."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript(TABLES)
        connection.executemany(UPSERT, upserts)
        rows = [(batch_id, product, orders) for product, orders in counts]
        connection.executemany("insert or replace into batches values (?, ?, ?)", rows)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(
        __doc__, "input", "output", "database", "stop-file", trigger="5 seconds", iterations=300
    )


if __name__ == "__main__":
    main()
