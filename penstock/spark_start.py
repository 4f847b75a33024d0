"""Starts a Spark session; where Spark cannot start, says what it needs."""

from __future__ import annotations

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.errors import SparkUnavailable

NEEDED = "it needs Java 17 or later, on the PATH or where JAVA_HOME says"


def started(builder: SparkSession.Builder) -> SparkSession:
    """The session of this builder."""
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkUnavailable(f"Spark does not start: {str(error).rstrip('.')}; {NEEDED}") from error
