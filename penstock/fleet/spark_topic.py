"""Decisions to a Kafka topic, a message each, keyed by application; Spark's connector must be there."""

from __future__ import annotations

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.fleet.places import Topic


def publish(spark: SparkSession, topic: Topic, decisions: pa.Table) -> None:
    """Send the decisions; done again after a failure they come twice, and agents take each once."""
    if not decisions.num_rows:
        return
    rows = [(row["application"], orjson.dumps(row).decode()) for row in decisions.to_pylist()]
    frame = spark.createDataFrame(rows, "key STRING, value STRING")
    options = {"kafka.bootstrap.servers": topic.servers, "topic": topic.name}
    frame.write.format("kafka").options(**options).save()
