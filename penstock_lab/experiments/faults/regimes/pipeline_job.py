"""A pipeline that squares numbers and passes them on, run until a file `stop` is there: DIRECTORY.

What comes out has the number that went in, so that every record can be told.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

NUMBERS, MIDDLE, SQUARES = "numbers", "middle", "squares"
PER_FILE = 50


def put_numbers(place: Path, which: int) -> None:
    """Write one file of the topic from outside; nobody sees half of one."""
    folder = place / "topics" / NUMBERS
    folder.mkdir(parents=True, exist_ok=True)
    numbers = range(which * PER_FILE, (which + 1) * PER_FILE)
    unfinished = folder / f".{which}.parquet"
    pd.DataFrame({"number": numbers}).to_parquet(unfinished, index=False)
    unfinished.rename(folder / f"{which}.parquet")


def read_numbers(place: Path, topic: str) -> list[int]:
    """Return the numbers in a topic."""
    found: list[int] = []
    for path in sorted((place / "topics" / topic).rglob("*.parquet")):
        if not path.name.startswith((".", "_")):
            try:
                found += pq.read_table(path, columns=["number"])["number"].to_pylist()
            except OSError:
                continue
    return found


def main(place: Path) -> None:
    """Run the pipeline."""
    from pyspark.sql import SparkSession

    from penstock.pipeline import Pipeline, files

    pipeline = Pipeline("squares", topics=files(str(place / "topics")))
    pipeline.topic(NUMBERS, schema="number bigint")

    def square(batch: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"number": batch["number"], "square": batch["number"] ** 2})

    def check(batch: pd.DataFrame) -> pd.DataFrame:
        return batch[batch["square"] == batch["number"] ** 2]

    schema = "number bigint, square bigint"
    pipeline.add(square, name="square", reads=NUMBERS, writes=MIDDLE, schema=schema, parallelism=(1, 3))
    pipeline.add(check, name="check", reads=MIDDLE, writes=SQUARES, schema=schema, parallelism=(1, 3))
    spark = SparkSession.builder.appName("squares").config("spark.scheduler.mode", "FAIR").getOrCreate()
    handle = pipeline.run(spark, checkpoints=str(place / "checkpoints"), trigger="1s")
    while not (place / "stop").exists():
        time.sleep(0.5)
    handle.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
