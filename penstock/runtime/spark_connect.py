"""Serves Spark Connect from this driver, in which the autopilot sizes what remote clients run.

Private to Spark: `SparkConnectService.start`, `stop` and `localPort`, seen to work on Spark 4.3.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession

from penstock.errors import PenstockError, Unsupported
from penstock.observe.spark_status import java_context, spark_errors

log = logging.getLogger(__name__)


class ConnectServer:
    """Spark's own server for Connect, in the JVM of a driver; the sessions of its clients are Spark's."""

    def __init__(self, spark: SparkSession) -> None:
        """Begin to serve; without the server's classes this is Unsupported."""
        with spark_errors("starting Spark Connect"):
            service: Any = spark._jvm.org.apache.spark.sql.connect.service  # type: ignore[union-attr]
            self._service = service.SparkConnectService
            if isinstance(self._service, JavaPackage):
                raise Unsupported("this Spark cannot serve Spark Connect: its jar spark-connect is missing")
            self._service.start(java_context(spark))
            module = getattr(getattr(service, "SparkConnectService$"), "MODULE$")
            self.port = int(module.localPort())

    def close(self) -> None:
        """Stop serving and end the sessions of all clients, with their queries; may be called twice."""
        try:
            with spark_errors("ending Spark Connect"):
                no_limit = (getattr(self._service, f"stop$default${number}")() for number in (1, 2))
                self._service.stop(*no_limit)
        except PenstockError as error:
            # the JVM may have been told to end as well
            log.debug("%s", error)
