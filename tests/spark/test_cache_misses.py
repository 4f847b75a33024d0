"""A state that RocksDB's cache cannot hold is seen on a real cluster, and one that it holds is not."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import functions as sf

from penstock.dataflow.window import ApplicationWindow
from penstock.observe.progress import CACHE_KEY, ROOM_KEY
from penstock.observe.spark_source import SparkSource
from penstock_lab.workloads.state_stores import ROCKSDB_STATE
from tests.spark.watching import query_of
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.soak]
HELD = 2

KEYS, RECORDS = 300_000, 20_000
CACHES = {"starved": 1, "served": 256}
"""Query → the megabytes of its cache for each of two bins, which hold some 15 of state each."""


@pytest.fixture(scope="module")
def spark(local_cluster):
    session = local_cluster(held=HELD)
    session.conf.set("spark.sql.shuffle.partitions", 2)
    session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB_STATE)
    return session


def started(spark, name, checkpoint):
    """Counts of keys in no order, far apart: neighbours share no block."""
    spark.conf.set(CACHE_KEY, CACHES[name])
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", RECORDS).load()
    scattered = sf.pmod(sf.xxhash64("value"), sf.lit(KEYS))
    keys = numbers.select(sf.sha2(scattered.cast("string"), 512).alias("key"))
    writer = keys.groupBy("key").count().writeStream.format("noop").outputMode("update").queryName(name)
    return writer.option("checkpointLocation", str(checkpoint / name)).start()


def test_a_cache_that_most_reads_miss_is_told_with_the_way_out(spark, tmp_path):
    source, told = SparkSource(spark), {}
    for name in CACHES:
        query = started(spark, name, tmp_path)
        try:
            told[name] = wait_for(f"25 batches of {name}", lambda name=name: _warnings(source, name, 25))
        finally:
            query.stop()
    (advice,) = {one for one in told["starved"] if CACHE_KEY in one}
    assert advice.startswith("query starved:") and ROOM_KEY in advice
    assert not [one for one in told["served"] if CACHE_KEY in one]


def _warnings(source, name, batches):
    window = source.observe(time.time())
    seen = query_of(window, name)
    if seen is None or not any(batch.batch_id >= batches for batch in seen.batches):
        return None
    assert isinstance(window, ApplicationWindow)
    return [*window.warnings, f"{batches} batches seen"]
