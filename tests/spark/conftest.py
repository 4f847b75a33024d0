"""One real cluster of executor processes that tests share; each test leaves it as it found it."""

import os
from collections.abc import Callable, Iterator, Mapping

import pytest
from pyspark.sql import SparkSession

from penstock.runtime.attach import detach_all
from penstock_lab.ground.class_archive import ClassArchive
from penstock_lab.ground.class_training import train_drivers
from penstock_lab.ground.kafka_broker import kafka_broker
from penstock_lab.ground.spark_cluster import (
    LIGHT_JVM,
    ClusterShape,
    executor_ids,
    hold_executors,
    restore_settings,
    start_cluster,
    stop_cluster,
)

ClusterFactory = Callable[..., SparkSession]
SHARED = ClusterShape(executors=3, cores=2, conf={"spark.scheduler.mode": "FAIR"})
"""Up to six slots; functions of a pipeline share them fairly, and whoever is alone has them all."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests on many executors first, so that few are started anew; those with their own Spark end it.

    A module names as HELD the executors that it begins with.
    """
    items.sort(key=lambda item: (item.get_closest_marker("own_cluster") is not None, -executors_of(item)))


def executors_of(item: pytest.Item) -> int:
    """Return the executors that a test on a cluster begins with; the others, sorted here too, need none."""
    on_cluster = isinstance(item, pytest.Function) and item.get_closest_marker("spark") is not None
    return getattr(item.module, "HELD", 0) if on_cluster else 0


class Clusters:
    """The cluster that runs now, started when it is first asked for and again when it has died."""

    def __init__(self) -> None:
        self._running: tuple[ClusterShape, SparkSession, Mapping[str, str]] | None = None

    def provide(self, shape: ClusterShape, held: int) -> SparkSession:
        """Return a session of this shape with so many executors."""
        if self._running is None or self._running[0] != shape or not is_alive(self._running[1]):
            started = start_cluster(shape)
            self._running = shape, started, dict(started.conf.getAll)
        session = self._running[1]
        hold_executors(session, held)
        return session

    def active_queries(self) -> dict[str, object]:
        """Return the streaming queries that run now, by their run."""
        if self._running is None or not is_alive(self._running[1]):
            return {}
        return {query.runId: query for query in self._running[1].streams.active}

    def restore(self) -> None:
        """Give the session the settings that it started with."""
        if self._running is not None and is_alive(self._running[1]):
            restore_settings(self._running[1], self._running[2])


def is_alive(session: SparkSession) -> bool:
    try:
        return not session.sparkContext._jsc.sc().isStopped() and executor_ids(session) is not None
    except Exception:
        return False  # its driver has died with a test


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    train_drivers()
    archive = ClassArchive("driver")
    # for the drivers of other processes, too
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join((LIGHT_JVM, *archive.options))
    os.environ["SPARK_CONF_DIR"] = str(archive.configuration)
    yield Clusters()
    stop_cluster()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Kafka broker; each module has topics of its own names."""
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture(scope="module")
def local_cluster(clusters: Clusters) -> Iterator[ClusterFactory]:
    """Call it with `held`, the executors to begin with, for the shared cluster of up to three executors.

    With `conf` that only a start of Spark can set, or another shape, it is a cluster of the module's own, and
    the module is marked `own_cluster`.
    """

    def factory(
        held: int | None = None,
        executors: int = SHARED.executors,
        cores: int = SHARED.cores,
        conf: Mapping[str, str] | None = None,
    ) -> SparkSession:
        shape = ClusterShape(executors, cores, conf={**SHARED.conf, **(conf or {})})
        return clusters.provide(shape, executors if held is None else held)

    yield factory
    clusters.restore()


@pytest.fixture(scope="module")
def spark(local_cluster: ClusterFactory, request: pytest.FixtureRequest) -> SparkSession:
    """The shared cluster, with as many executors as the module's HELD says."""
    return local_cluster(held=request.module.HELD)


@pytest.fixture(autouse=True)
def _nothing_goes_on(clusters: Clusters) -> Iterator[None]:
    """Stop what a test left running, as when it failed: the next one is not to see it."""
    before = clusters.active_queries()
    yield
    detach_all()
    for run, query in clusters.active_queries().items():
        if run not in before:
            query.stop()  # type: ignore[attr-defined]
