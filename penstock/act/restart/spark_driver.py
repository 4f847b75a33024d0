"""A supervised driver's queries: batches that have ended, and a stop between two of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from penstock.decide.sage.sizes import SIZING_KEYS
from penstock.observe.spark_status import RunningQuery, SparkStatus, spark_errors

LOOK_EVERY_SECONDS = 0.02
AT_WORK = "Processing new data"
"""Spark's words for a query whose offsets are written and whose batch runs."""


class SparkDriver:
    """The queries of one application, to be watched and stopped."""

    def __init__(self, spark: SparkSession, stop_seconds: float) -> None:
        self._spark, self._stop_seconds = spark, stop_seconds
        self._status = SparkStatus(spark)
        self._told: dict[str, str] = {}

    def in_effect(self) -> Mapping[str, str]:
        """Return the settings that say how large the application is."""
        conf = dict(self._spark.sparkContext.getConf().getAll())
        return {key: conf[key] for key in SIZING_KEYS if key in conf}

    def new_batches(self) -> list[tuple[float, bool]]:
        """Return the newest batch of each query, once: when it ended, and whether it was an idle trigger."""
        found = []
        for query in self._status.queries():
            reports = self._status.progress(query, 0.0, float("inf"), 1)
            if reports and self._told.get(query.run_id) != reports[-1]["timestamp"]:
                self._told[query.run_id] = reports[-1]["timestamp"]
                found.append(_read_end(reports[-1]))
        return found

    def stop_after_batch(self) -> None:
        """Stop each query where Spark can go on from: idle, or inside the batch after the one that ran."""
        deadline = time.monotonic() + self._stop_seconds
        waiting = [(query, self._status.last_batch(query)) for query in self._status.queries()]
        while waiting:
            late = time.monotonic() > deadline
            ready = [query for query, batch in waiting if late or self._can_stop(query, batch)]
            for query in ready:
                with spark_errors("stopping a query"):
                    query.execution.stop()
            waiting = [(query, batch) for query, batch in waiting if query not in ready]
            time.sleep(LOOK_EVERY_SECONDS)

    def _can_stop(self, query: RunningQuery, batch: int) -> bool:
        """Tell whether a stop is safe: Spark interrupts a query wherever it is, also while it writes a log.

        Where batches follow each other at once, the next one is broken off while it works, and run again.
        """
        if not self._status.is_working(query):
            return True
        if self._status.last_batch(query) <= batch:
            return False
        with spark_errors("asking for a query's state"):
            return str(query.execution.status().message()) == AT_WORK


def _read_end(report: Mapping[str, Any]) -> tuple[float, bool]:
    durations = report.get("durationMs") or {}
    begun = datetime.fromisoformat(report["timestamp"]).timestamp()
    return begun + float(durations.get("triggerExecution", 0)) / 1000, "addBatch" not in durations
