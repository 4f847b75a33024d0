"""A small real cluster in one machine: `local-cluster` with executor processes that start cheaply.

Py4J calls seen to work on Spark 4.3: `requestTotalExecutors`, `killExecutors`, `getExecutorIds`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import ActionFailed
from penstock.observe.executors.processes import find_executors, list_processes
from penstock.observe.spark_session import start_spark
from penstock_lab.ground.class_archive import ClassArchive, find_spark
from penstock_lab.workloads.state_stores import HDFS_STATE

LIGHT_JVM = " ".join(
    (
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-Xss512k",
        "-Djdk.lang.Process.launchMechanism=VFORK",
    )
)
"""Executors that live for minutes never earn back what the optimising compiler costs two cores.

Without Hadoop's native library every checkpoint file forks a `chmod` or two: VFORK makes them cheap.
"""


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """How many executors the cluster can hold, and how big each is.

    `url` is the master of a cluster that runs already; without one a local cluster is started.
    """

    executors: int = 5
    cores: int = 3
    executor_memory_mb: int = 512
    name: str = "penstock"
    log_level: str = "ERROR"
    conf: Mapping[str, str] = field(default_factory=dict)
    url: str = ""

    @property
    def master(self) -> str:
        """Workers get room for one executor each, with what Spark reserves beside the heap."""
        return self.url or f"local-cluster[{self.executors},{self.cores},{self.executor_memory_mb}]"


def cluster_conf(shape: ClusterShape) -> dict[str, str]:
    """Settings that keep fixed costs low; `shape.conf` has the last word."""
    archive = " ".join(ClassArchive("driver").options)
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": f"{shape.executor_memory_mb}m",
        "spark.executor.cores": str(shape.cores),
        "spark.driver.extraJavaOptions": f"{LIGHT_JVM} {archive} -Dlog4j2.configurationFile={_quiet_start()}",
        "spark.executor.extraJavaOptions": f"{LIGHT_JVM} {archive}",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "penstock_lab.workloads.warm_daemon",
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
        "spark.sql.streaming.stateStore.providerClass": HDFS_STATE,
        "spark.sql.streaming.stateStore.maintenanceInterval": "10min",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "500",
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        "spark.network.timeout": "60s",
        "spark.executor.heartbeatInterval": "2s",
        # two clusters that start in the same second would share an id, and the directories of executors
        "spark.deploy.appIdPattern": f"app-%s-{os.getpid()}%04d",
        **shape.conf,
    }


def start_cluster(shape: ClusterShape) -> SparkSession:
    """Start a session on a fresh cluster; a session that still runs is stopped first."""
    stop_cluster()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(ClassArchive("driver").configuration))
    builder = SparkSession.builder.master(shape.master).appName(shape.name)
    for key, value in cluster_conf(shape).items():
        builder = builder.config(key, value)
    spark = start_spark(builder)
    spark.sparkContext.setLogLevel(shape.log_level)
    if shape.conf.get("spark.dynamicAllocation.enabled") != "true":
        _await_all(spark, shape.executors)
    return spark


def _await_all(spark: SparkSession, executors: int, timeout_seconds: float = 90) -> None:
    """Wait for every worker's first executor: one that is still starting cannot be sent away."""
    deadline = time.monotonic() + timeout_seconds
    while len(executor_ids(spark)) < executors:
        if time.monotonic() > deadline:
            raise ActionFailed(f"only {len(executor_ids(spark))} of {executors} executors have started")
        time.sleep(0.1)


@cache
def _quiet_start() -> str:
    """A log configuration for the seconds until the session can be told its log level.

    A new file that nobody can foresee: whoever can write what Java's log is configured by can run code in it.
    """
    descriptor, name = tempfile.mkstemp(prefix="penstock-log4j2-", suffix=".properties")
    os.close(descriptor)
    file = Path(name)
    atexit.register(file.unlink, missing_ok=True)
    file.write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\nappender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\nappender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n",
        encoding="utf-8",
    )
    return file.as_uri()


def stop_cluster() -> None:
    """Stop the running session, if there is one, with its executors."""
    _KEPT.forget()
    try:
        _stop_session()
    except (Py4JNetworkError, OSError):
        _forget_driver()


def _forget_driver() -> None:
    """The driver's Java has died: without what Python holds of it the next cluster starts a new one."""
    context: Any = SparkContext
    session: Any = SparkSession
    context._active_spark_context = context._gateway = context._jvm = None
    session._instantiatedSession = session._activeSession = None


def _stop_session() -> None:
    # a thread whose connection to Java broke knows of no active session, though one runs
    running: Any = SparkSession
    spark = SparkSession.getActiveSession() or running._instantiatedSession
    if spark is None:
        return
    for query in spark.streams.active:
        query.stop()
    logs = find_spark() / "work" / spark.sparkContext.applicationId
    spark.stop()
    # executors log into Spark's own directory, where nobody would look for them or remove them
    shutil.rmtree(logs, ignore_errors=True)


@contextmanager
def cluster(shape: ClusterShape, executors: int | None = None) -> Iterator[SparkSession]:
    """A cluster for the length of a `with`, started with so many executors (default: all)."""
    spark = _KEPT.taken(shape) or start_cluster(shape)
    settings = dict(spark.conf.getAll)
    try:
        hold_executors(spark, shape.executors if executors is None else executors)
        yield spark
    except BaseException:
        stop_cluster()
        raise
    if not _KEPT.keeps(spark, shape, settings):
        stop_cluster()


@contextmanager
def clusters_kept() -> Iterator[None]:
    """Inside, the last cluster outlives its `with` until one of another shape is asked for.

    Experiments that follow each other on one kind of cluster are spared its start and its cold Java.
    """
    _KEPT.wanted = True
    try:
        yield
    finally:
        _KEPT.wanted = False
        stop_cluster()


class _Kept:
    """The cluster that waits for its next use."""

    def __init__(self) -> None:
        self.wanted = False
        self._waiting: tuple[ClusterShape, SparkSession] | None = None

    def taken(self, shape: ClusterShape) -> SparkSession | None:
        """The waiting cluster if it is of this shape."""
        waiting, self._waiting = self._waiting, None
        if waiting is None or replace(waiting[0], name="") != replace(shape, name=""):
            return None
        return waiting[1]

    def keeps(self, spark: SparkSession, shape: ClusterShape, settings: Mapping[str, str]) -> bool:
        """Put it aside for the next one who asks, its settings as they were; False where nobody wants it."""
        if not self.wanted:
            return False
        for query in spark.streams.active:
            query.stop()
        restore_settings(spark, settings)
        self._waiting = shape, spark
        return True

    def forget(self) -> None:
        """Nothing waits any more."""
        self._waiting = None


_KEPT = _Kept()


def restore_settings(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Give a session the settings that it had: others are unset, changed ones set back."""
    now = dict(spark.conf.getAll)
    for key in now.keys() - settings.keys():
        spark.conf.unset(key)
    for key, value in settings.items():
        if now.get(key) != value:
            spark.conf.set(key, value)


def executor_ids(spark: SparkSession) -> list[str]:
    """Executors that are registered now, oldest first."""
    context: Any = spark.sparkContext._jsc
    ids = context.sc().getExecutorIds()
    return sorted((str(ids.apply(number)) for number in range(ids.size())), key=int)


def hold_executors(spark: SparkSession, wanted: int, timeout_seconds: float = 90) -> None:
    """Bring the cluster to exactly so many executors, and wait until it is seen to have them."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    scala_context = context._jsc.sc()
    no_hints = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
    scala_context.requestTotalExecutors(wanted, 0, no_hints)
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        held = executor_ids(spark)
        if len(held) == wanted:
            return
        if len(held) > wanted:
            scala_context.killExecutors(jvm.org.apache.spark.api.python.PythonUtils.toSeq(held[wanted:]))
        time.sleep(0.2)
    raise ActionFailed(f"the cluster has {len(executor_ids(spark))} executors, not {wanted}")


def executor_process(spark: SparkSession, executor: str) -> int:
    """Find the process of one executor of a local cluster."""
    found = find_executors(list_processes(), str(spark.sparkContext.applicationId))
    if executor in found:
        return found[executor]
    raise ActionFailed(f"there is no process of executor {executor}")


def kill_executor(spark: SparkSession, executor: str) -> None:
    """End an executor as a crash does."""
    os.kill(executor_process(spark, executor), signal.SIGKILL)


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory for checkpoints, in memory where the system has such a place, removed afterwards."""
    memory = Path("/dev/shm")
    parent = str(memory) if memory.is_dir() and sys.platform == "linux" else None
    directory = Path(tempfile.mkdtemp(prefix="penstock-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class SlotRecorder:
    """Samples the number of slots over time in a thread, for slot-seconds and timelines."""

    def __init__(self, spark: SparkSession, cores: int, every_seconds: float = 0.5) -> None:
        self.samples: list[tuple[float, int]] = []
        self._spark = spark
        self._cores = cores
        self._every = every_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slot-recorder", daemon=True)

    def __enter__(self) -> SlotRecorder:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._sample()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._sample()

    def _sample(self) -> None:
        self.samples.append((time.time(), len(executor_ids(self._spark)) * self._cores))
