"""Spark sessions: whether one can be watched and steered, and starting one for a command of ours."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.errors import PenstockError, SparkUnavailable, Unsupported
from penstock.observe.spark_status import spark_errors
from penstock.observe.versions import OLDEST_SPARK, parse_version

ELSEWHERE = (
    "this is a Spark Connect session, and its driver is another process: serve it with "
    "`penstock connect-server`, or call penstock.attach(spark) in the driver"
)


def find_driver_session(spark: Any, here: SparkSession | None) -> Any:
    """Return the classic session behind a Connect session if it is `here`, in this process.

    Any other session is returned as it is.
    """
    if not _is_connect(spark):
        return spark
    if here is None or here.sparkContext._jsc is None:
        raise Unsupported(ELSEWHERE)
    with spark_errors("asking a Spark Connect session for its application"):
        application = spark.conf.get("spark.app.id", None)
    if application != application_id(here):
        raise Unsupported(ELSEWHERE)
    return here


def own_session() -> SparkSession | None:
    """Return the classic session of this process, if it is a driver."""
    return SparkSession._instantiatedSession


def check_supported(spark: object) -> None:
    """Raise Unsupported, in one sentence with the way out, where this session cannot be watched."""
    if _is_connect(spark):
        raise Unsupported(ELSEWHERE)
    if not isinstance(spark, SparkSession):
        raise Unsupported(f"a SparkSession is needed, not a {type(spark).__name__}")
    if spark.sparkContext._jsc is None:
        raise SparkUnavailable("this Spark session has been stopped")
    found = parse_version(spark.version)
    if found is None or found < OLDEST_SPARK:
        raise Unsupported(f"Spark {spark.version} is too old: Spark 4.1 or later is needed")


def _is_connect(spark: object) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


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
    """Return the name that the user gave the application."""
    return str(spark.sparkContext.appName)


NEEDED = "it needs Java 17 or later, on the PATH or where JAVA_HOME says"


def start_session(name: str, conf: Mapping[str, str], master: str | None = "local[*]") -> SparkSession:
    """Start a session on this machine, or on the master that `conf` names; its workers run this Python."""
    settings = {"spark.ui.showConsoleProgress": "false", **conf}
    if master is not None:
        settings.setdefault("spark.master", master)
    if settings.get("spark.master", "").startswith("local"):
        # workers need the packages of this Python, whichever one comes first on the path
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return start_spark(builder)


def start_spark(builder: SparkSession.Builder) -> SparkSession:
    """Return the session of this builder."""
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkUnavailable(f"Spark does not start: {str(error).rstrip('.')}; {NEEDED}") from error


def stop_session(spark: SparkSession) -> None:
    """Stop a session of ours; a JVM that has ended already is no reason to complain."""
    with suppress(PenstockError), warnings.catch_warnings(), spark_errors("stopping"):
        warnings.simplefilter("ignore")
        spark.stop()
