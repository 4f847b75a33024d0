"""A streaming job with a known need, run as a script of its own: `sizing_job.py CASE DIRECTORY`.

Each case eats one resource: state in the heap, memory of Python workers, native memory of RocksDB, cores, or
what the collector clears away. The end of each batch is written to `batches` with the executors of that
moment; the job ends when a file `enough` appears.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.bench.sizing_eaters import burn, hold
from penstock.bench.spark_cluster import HDFS_STATE, ROCKSDB_STATE, executor_ids

ROWS = {"heap": 40_000, "rocksdb": 40_000}
"""In a batch; 20,000 where it is not said."""
KEYS = 200_000
"""Of a KiB each; after five batches all of them are there."""
PERIOD = {"cpu": "0 seconds"}
"""Between batches; two seconds where it is not said."""
ROCKSDB_CACHE_MB = 192
LISTS = 100
"""Fewer than those from which Spark sorts instead of keeping objects."""


def main(case: str, directory: Path) -> None:
    """Run the case until there is enough of it."""
    spark = _session(case)
    (directory / "application").write_text(str(spark.sparkContext.applicationId))
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS.get(case, 20_000))
    frame = CASES[case](numbers.option("numPartitions", 1).load())
    writer = frame.writeStream.foreachBatch(_ended(spark, case, directory)).queryName(case)
    mode = "update" if case in ("heap", "rocksdb") else "append"
    timed = writer.outputMode(mode).trigger(processingTime=PERIOD.get(case, "2 seconds"))
    query = timed.option("checkpointLocation", str(directory / "checkpoint")).start()
    while query.isActive and not (directory / "enough").exists():
        query.awaitTermination(1)
    query.stop()
    spark.stop()


def _session(case: str) -> SparkSession:
    """One executor, whatever its cores: a standalone cluster starts as many as fit."""
    SparkContext._ensure_initialized()
    cores = SparkConf().get("spark.executor.cores", "1") or "1"
    builder = SparkSession.builder.appName(f"sizing {case}").config("spark.cores.max", cores)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    provider = ROCKSDB_STATE if case == "rocksdb" else HDFS_STATE
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB", ROCKSDB_CACHE_MB)
    return spark


def _ended(spark: SparkSession, case: str, directory: Path) -> Callable[[DataFrame, int], None]:
    def ended(frame: DataFrame, batch: int) -> None:
        found = _collected(frame) if case == "gc" else frame
        found.write.format("noop").mode("overwrite").save()
        with (directory / "batches").open("a") as log:
            log.write(f"{time.time()} {','.join(executor_ids(spark))}\n")

    return ended


def _counted(frame: DataFrame) -> DataFrame:
    """Long keys whose counts are kept: the state is what is large."""
    long = f"repeat(sha2(cast(value % {KEYS} AS STRING), 512), 8) AS key"
    return frame.selectExpr(long).groupBy("key").count()


def _held_in_python(frame: DataFrame) -> DataFrame:
    return frame.select("value").mapInPandas(hold, "value LONG")


def _burnt(frame: DataFrame) -> DataFrame:
    return frame.select("value").mapInPandas(burn, "value LONG")


def _plain(frame: DataFrame) -> DataFrame:
    return frame.select("value")


def _collected(frame: DataFrame) -> DataFrame:
    """Many small objects that live until the batch ends: what is alive is moved again and again."""
    many = frame.selectExpr(f"value % {LISTS} AS key", "value", "explode(sequence(1, 25)) AS n")
    texts = many.selectExpr("key", "repeat(concat(value, '-', n), 60) AS text")
    return texts.groupBy("key").agg({"text": "collect_list"})


CASES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "heap": _counted,
    "python": _held_in_python,
    "rocksdb": _counted,
    "cpu": _burnt,
    "gc": _plain,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
