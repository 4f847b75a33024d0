"""One real cluster of executor processes for each test module."""

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.bench.spark_cluster import ClusterShape, hold_executors, start_cluster, stop_cluster

ClusterFactory = Callable[..., SparkSession]


@pytest.fixture(scope="module")
def local_cluster() -> Iterator[ClusterFactory]:
    """Call it with executors, cores, held (executors to begin with) and conf.

    The same executors, cores and conf give the running session again, brought to `held` executors;
    others stop it and start a new one.
    """
    running: dict[tuple[object, ...], SparkSession] = {}

    def factory(
        executors: int = 2, cores: int = 2, held: int | None = None, conf: dict[str, str] | None = None
    ) -> SparkSession:
        key = (executors, cores, tuple(sorted((conf or {}).items())))
        if key not in running:
            running.clear()
            running[key] = start_cluster(ClusterShape(executors, cores, conf=conf or {}))
        if (conf or {}).get("spark.dynamicAllocation.enabled") != "true":
            hold_executors(running[key], executors if held is None else held)
        return running[key]

    yield factory
    stop_cluster()
