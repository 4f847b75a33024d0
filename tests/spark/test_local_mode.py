"""Local mode has no executor processes: it is observed and not steered."""

import pytest
from pyspark.sql import SparkSession

from penstock.act.spark_executors import SparkExecutors
from penstock.errors import SparkUnavailable, Unsupported
from penstock.observe.spark_source import SparkSource
from penstock_lab.ground.spark_cluster import stop_cluster
from tests.spark.watching import watch

pytestmark = [pytest.mark.spark, pytest.mark.own_cluster]


def test_local_mode_is_observed_and_not_steered(tmp_path):
    stop_cluster()  # Spark has one session a process
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        with pytest.raises(Unsupported, match=r"local\[2\] has no executor processes"):
            SparkExecutors(spark)
        source = SparkSource(spark)
        stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 40).load()
        writer = stream.writeStream.format("noop").queryName("local").trigger(processingTime="1 second")
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        window, seen = watch(source, "local", lambda seen: bool(seen.batches))
        assert (window.slots, window.slots_per_executor) == (2, 2)
        assert seen.batches[-1].stages[0].records_in.sum() == 40
        query.stop()
    finally:
        spark.stop()
    with pytest.raises(SparkUnavailable):
        source.observe(1e10)
