"""A driver that uses what queries use, and leaves an archive of its classes for drivers and executors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock_lab.ground.class_archive import ClassArchive
from penstock_lab.ground.spark_cluster import (
    ClusterShape,
    cluster_conf,
    scratch_directory,
    start_cluster,
    stop_cluster,
)

PATIENCE_SECONDS = 300.0


def train_drivers() -> None:
    """Make the archive of drivers and executors, if there is none: up to a minute, once."""
    archive = ClassArchive("driver")
    with archive.writing():
        if archive.exists():
            return
        command = [sys.executable, "-m", "penstock_lab.ground.class_training", *archive.training]
        # without it all goes on as before, only slower
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_SECONDS)
        archive.keep()


def use_classes(option: str) -> None:
    """Load the classes of a cluster, and of tasks in the driver's process, and end it with `option`."""
    shape = ClusterShape(executors=1, cores=1)
    java = f"{cluster_conf(shape)['spark.driver.extraJavaOptions']} {option}"
    start_cluster(ClusterShape(executors=1, cores=1, conf={"spark.driver.extraJavaOptions": java}))
    stop_cluster()
    spark = SparkSession.builder.master("local[1]").config("spark.sql.shuffle.partitions", "1").getOrCreate()
    with scratch_directory() as place:
        _run_query(spark, place)
    spark.stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _run_query(spark: SparkSession, place: Path) -> None:
    spark.range(100).selectExpr("id", "cast(id as timestamp) as at").write.json(f"{place}/json")
    numbers = spark.readStream.schema("id long, at timestamp").json(f"{place}/json")
    passed = numbers.withWatermark("at", "1 second").mapInPandas(_pass_on, "id long, at timestamp")
    counts = passed.groupBy("id").count()
    writer = counts.writeStream.outputMode("complete").format("memory").queryName("counts")
    writer = writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()
    spark.table("counts").write.parquet(f"{place}/parquet")
    spark.read.parquet(f"{place}/parquet").join(spark.range(10), "id").collect()


def _pass_on(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    yield from frames


if __name__ == "__main__":
    use_classes(sys.argv[1]) if len(sys.argv) > 1 else train_drivers()
