"""The number of a query's bins changed by Spark's own means, while the query is stopped.

Spark's manager of streaming checkpoints is there since 4.2, for RocksDB, and private in Python; seen to work
on Spark 4.3. It refuses a checkpoint whose last batch was not committed: a query is stopped while it idles.
"""

from __future__ import annotations

import time
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import ActionFailed, BadInput, NotFound
from penstock.migrate.bins import StateView
from penstock.migrate.repartition import Repartition, find_repartition_obstacle, plan_repartition
from penstock.migrate.spark_views import SparkViews
from penstock.observe.spark_status import RunningQuery, spark_errors

ROCKSDB, HDFS = "RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider"
FIRST_BATCH_SECONDS = 300.0
IDLE_SECONDS = 60.0


def repartition_checkpoint(spark: SparkSession, checkpoint: str, bins: int) -> None:
    """Rewrite the state of a stopped query."""
    manager: Any = getattr(spark, "_streamingCheckpointManager", None)
    if manager is None:
        raise ActionFailed(f"Spark {spark.version} cannot repartition a checkpoint")
    try:
        manager.repartition(checkpoint, bins)
    except PySparkException as problem:
        raise ActionFailed(str(problem).splitlines()[0]) from problem


class SparkBins:
    """Stops one query at a time and rewrites its state."""

    def __init__(self, spark: SparkSession, views: SparkViews) -> None:
        self._spark, self._views = spark, views

    def expected(self, query: str, bins: int) -> Repartition:
        """Plan what it takes to have so many bins."""
        view = self._view(query)
        running = self._running(query)
        steady = self._views.newest_seconds(running)
        obstacle = self._obstacle(running)
        found = plan_repartition(view, bins, 1.0 if steady is None else steady, obstacle)
        if found is None:
            held = len({state.bin.partition for state in view.bins})
            raise BadInput(f"{view.name} has {held} bins already: {bins} would not be more")
        return found

    def rewrite(self, query: str, bins: int) -> None:
        """Stop the query and rewrite its checkpoint."""
        running = self._running(query)
        (stage, *_) = self._views.stages(running)
        checkpoint = stage.root.removesuffix("/state")
        self._await_idle(running)
        with spark_errors("stopping a query"):
            running.execution.stop()
        repartition_checkpoint(self._spark, checkpoint, bins)

    def first_batch(self, query: str) -> bool:
        """Wait until the query, by name or id, has finished a batch again."""
        deadline = time.monotonic() + FIRST_BATCH_SECONDS
        while time.monotonic() < deadline:
            found = self._find(query)
            if found is not None and self._views.status.last_batch(found) >= 0:
                return True
            time.sleep(0.1)
        return False

    def _await_idle(self, query: RunningQuery) -> None:
        """Wait for a pause between triggers: a batch that is cut off must be run again first."""
        deadline = time.monotonic() + IDLE_SECONDS
        while self._views.status.is_working(query) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _view(self, query: str) -> StateView:
        for view in self._views.full_views():
            if query in (view.query, view.name):
                return view
        raise NotFound(f"there is no query {query} with state")

    def _running(self, query: str) -> RunningQuery:
        found = self._find(query)
        if found is None:
            raise NotFound(f"there is no query {query}")
        return found

    def _find(self, query: str) -> RunningQuery | None:
        running = self._views.status.queries()
        return next((one for one in running if query in (one.query_id, one.name)), None)

    def _obstacle(self, query: RunningQuery) -> str | None:
        (stage, *_) = self._views.stages(query)
        on_demand = self._views.placement.measure_stored(stage, stage.bins()[0]).on_demand
        return find_repartition_obstacle(self._spark.version, ROCKSDB if on_demand else HDFS)
