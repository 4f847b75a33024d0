"""A streaming job with a known need, run as a script of its own: `job.py CASE DIRECTORY`.

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

from penstock_lab.experiments.sizing.eaters import burn, hold
from penstock_lab.ground.spark_cluster import executor_ids
from penstock_lab.workloads.state_stores import HDFS_STATE, ROCKSDB_STATE

ROWS = {"heap": 40_000, "rocksdb": 40_000}
"""In a batch; 20,000 in the other cases."""
KEYS = 200_000
"""Of a KiB each; after five batches all of them are there."""
PERIOD = {"cpu": "0 seconds"}
"""Between batches; two seconds in the other cases."""
ROCKSDB_CACHE_MB = 192
LISTS = 100
"""With more, Spark would sort instead of keeping objects."""


def main(case: str, directory: Path) -> None:
    """Run the case until there is enough of it."""
    spark = _start_session(case)
    (directory / "application").write_text(str(spark.sparkContext.applicationId))
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS.get(case, 20_000))
    frame = CASES[case](numbers.option("numPartitions", 1).load())

    def end_batch(frame: DataFrame, batch: int) -> None:
        found = _collect_objects(frame) if case == "gc" else frame
        found.write.format("noop").mode("overwrite").save()
        with (directory / "batches").open("a") as log:
            log.write(f"{time.time()} {','.join(executor_ids(spark))}\n")

    mode = "update" if case in ("heap", "rocksdb") else "append"
    writer = frame.writeStream.foreachBatch(end_batch).queryName(case).outputMode(mode)
    timed = writer.trigger(processingTime=PERIOD.get(case, "2 seconds"))
    query = timed.option("checkpointLocation", str(directory / "checkpoint")).start()
    while query.isActive and not (directory / "enough").exists():
        query.awaitTermination(1)
    query.stop()
    spark.stop()


def _start_session(case: str) -> SparkSession:
    """Start one executor, whatever its cores: a standalone cluster starts as many as fit."""
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


def _count_keys(frame: DataFrame) -> DataFrame:
    """Count long keys: the state is what is large."""
    long = f"repeat(sha2(cast(value % {KEYS} AS STRING), 512), 8) AS key"
    return frame.selectExpr(long).groupBy("key").count()


def _collect_objects(frame: DataFrame) -> DataFrame:
    """Make many small objects that live until the batch ends: the collector moves them again and again."""
    many = frame.selectExpr(f"value % {LISTS} AS key", "value", "explode(sequence(1, 25)) AS n")
    texts = many.selectExpr("key", "repeat(concat(value, '-', n), 60) AS text")
    return texts.groupBy("key").agg({"text": "collect_list"})


CASES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "heap": _count_keys,
    "python": lambda frame: frame.select("value").mapInPandas(hold, "value LONG"),
    "rocksdb": _count_keys,
    "cpu": lambda frame: frame.select("value").mapInPandas(burn, "value LONG"),
    "gc": lambda frame: frame.select("value"),
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
