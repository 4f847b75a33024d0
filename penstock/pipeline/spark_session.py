"""The Spark session of a pipeline that is run by itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.spark_start import started


def session(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """A session in which functions share the slots fairly, and no bar for every small job is drawn."""
    builder = SparkSession.builder.appName(name).config("spark.scheduler.mode", "FAIR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if master is not None:
        builder = builder.master(master)
    if master is not None and master.startswith("local"):
        # workers on this machine are to have the packages of this process, Penstock among them
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = started(builder)
    spark.sparkContext.setLogLevel("ERROR")
    return spark
