"""Whether a Spark session can be watched and steered, and how its application is called."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from penstock.errors import SparkUnavailable, Unsupported

OLDEST_SPARK = (4, 1)


def check_supported(spark: object) -> None:
    """Raise Unsupported, in one sentence with the way out, where this session cannot be watched."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise Unsupported(
            "this is a Spark Connect session, which hides the driver: attach in the driver's own process"
        )
    if not isinstance(spark, SparkSession):
        raise Unsupported(f"a SparkSession is needed, not a {type(spark).__name__}")
    if spark.sparkContext._jsc is None:
        raise SparkUnavailable("this Spark session has been stopped")
    found = re.match(r"(\d+)\.(\d+)", spark.version)
    if found is None or (int(found.group(1)), int(found.group(2))) < OLDEST_SPARK:
        raise Unsupported(f"Spark {spark.version} is too old: Spark 4.1 or later is needed")


def can_change_executors(spark: SparkSession) -> str | None:
    """None if executors can be added and released, else the reason in one sentence."""
    master = spark.sparkContext.master or ""
    if master.startswith("local") and not master.startswith("local-cluster"):
        return f"master {master} has no executor processes: only observing"
    if spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return "spark.dynamicAllocation.enabled is true, and two controllers would fight: only observing"
    return None


def application_id(spark: SparkSession) -> str:
    """Spark's id of the application."""
    return str(spark.sparkContext.applicationId)


def application_name(spark: SparkSession) -> str:
    """The name that the user gave the application."""
    return str(spark.sparkContext.appName)
