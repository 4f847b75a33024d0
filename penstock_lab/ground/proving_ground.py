"""The proving ground: a standalone Spark cluster on one machine whose workers are hosts with real limits.

    with ProvingGround(workers=6) as ground, cluster(ground.shape()) as spark:
        ground.slow_down("worker-2", factor=10)

The driver and the master run outside the limits. Each worker has a loopback address of its own, so Spark
takes it for a host of its own. Seen to work on Spark 4.3; all jars are those of PySpark.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
import psutil

from penstock.errors import ActionFailed, BadInput, NotFound
from penstock_lab.ground.class_archive import ClassArchive, find_spark
from penstock_lab.ground.control_groups import MOUNT, find_hierarchy
from penstock_lab.ground.hosts import EVERY_SECONDS, GroundHost, HostShape
from penstock_lab.ground.java_servers import find_free_ports, find_java, read_tail, start_server
from penstock_lab.ground.leftovers import Owner, remove_leftovers
from penstock_lab.ground.spark_cluster import LIGHT_JVM, ClusterShape

log = logging.getLogger(__name__)

DAEMON_HEAP_MB = 64
"""The heap of the master and of each worker."""

PATIENCE_SECONDS = 120.0
MOST_WORKERS = 250
_LOOPBACK = "127.0.0.1"
_NETWORK = "127.0.2"
_POLL_SECONDS = 0.1


class ProvingGround:
    """A master and workers, for the length of a `with`.

    Raises `GroupsUnavailable` where control groups cannot be made; `explain_refusal` says so beforehand. What
    grounds of dead processes left behind is removed first.
    """

    def __init__(self, workers: int = 3, host: HostShape | None = None, mount: Path = MOUNT) -> None:
        self.host, self._mount = host or HostShape(), mount
        self._wanted = workers
        self._hosts: dict[str, GroundHost] = {}
        self._name = Owner.this_process().next_name()
        self._directory = Path(tempfile.gettempdir()) / self._name
        self._port, self._page_port = find_free_ports(2)
        # that of a driver has the classes of tasks, too; a worker leaves one with those of its start alone
        known = [archive for kind in ("driver", "worker") if (archive := ClassArchive(kind)).exists()]
        self._archive = known[0] if known else ClassArchive("worker")
        self._cleanup, self._stopped = ExitStack(), threading.Event()

    def __enter__(self) -> Self:
        self._hierarchy = find_hierarchy(self._mount)
        for name in remove_leftovers(self._hierarchy):
            log.warning("removed %s, whose owner is dead", name)
        try:
            self._directory.mkdir()
            self._cleanup.callback(shutil.rmtree, self._directory, ignore_errors=True)
            self._write_conf()
            self._start_master()
            self._start_watcher()
            self.add_workers(self._wanted)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill all processes, remove all groups and the directory; may be called twice."""
        self._cleanup.close()

    @property
    def url(self) -> str:
        """The master's address, for drivers."""
        return f"spark://{_LOOPBACK}:{self._port}"

    @property
    def page(self) -> str:
        """The address of the master's JSON page."""
        return f"http://{_LOOPBACK}:{self._page_port}/json/"

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the workers that live, oldest first."""
        return tuple(name for name, host in self._hosts.items() if host.is_alive())

    @property
    def hosts(self) -> tuple[GroundHost, ...]:
        """The hosts of the workers that live, oldest first."""
        return tuple(host for host in self._hosts.values() if host.is_alive())

    def add_workers(self, count: int, host: HostShape | None = None) -> tuple[str, ...]:
        """Start workers, wait until the master has them, and return their names."""
        shape = host or self.host
        self._check_room(count, shape)
        new = [self._make_host(shape) for _ in range(count)]
        for one in new:
            self._start_worker(one)
        wanted = {one.address for one in new}
        self._await(
            f"{count} workers",
            lambda: wanted <= (self._list_registered() or set()),
            lambda: all(one.is_alive() for one in new),
        )
        for one in new:
            one.limit()
        return tuple(one.name for one in new)

    def kill(self, worker: str) -> None:
        """End a worker and its executors with SIGKILL, as a crash of the host does."""
        self._find(worker).kill()

    def pause(self, worker: str) -> None:
        """Stop all processes of a worker where they are."""
        self._find(worker).pause()

    def resume(self, worker: str) -> None:
        """Let a paused worker go on."""
        self._find(worker).resume()

    def slow_down(self, worker: str, factor: float) -> None:
        """Divide the quota of a worker by a factor; 1 gives it its own speed again."""
        self._find(worker).slow_down(factor)

    def release(self) -> None:
        """Run all workers without a quota until `limit` is called."""
        for host in self._hosts.values():
            host.release()

    def limit(self, at_once: bool = False) -> None:
        """Put all workers under their quota: each when it is warm, or at once."""
        for host in self._hosts.values():
            host.limit(at_once)

    def find_worker(self, address: str) -> str:
        """Return the worker at an address, which Spark calls the host of an executor."""
        for host in self._hosts.values():
            if host.address == address:
                return host.name
        raise NotFound(f"no worker has the address {address}")

    def describe(self) -> dict[str, Any]:
        """Return the ground and its workers as plain values, for a result or a log."""
        return {
            "ground": f"control groups, version {self._hierarchy.version}",
            "master": self.url,
            "machine_cores": _count_cores(),
            "workers": [host.describe() for host in self._hosts.values()],
        }

    def conf(self) -> dict[str, str]:
        """Return the Spark settings that a driver needs, with the master."""
        java = (LIGHT_JVM, f"-XX:ActiveProcessorCount={self.host.cores}", *self._archive.options)
        return {
            "spark.master": self.url,
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.ui.port": "0",
            "spark.executor.cores": str(self.host.cores),
            "spark.executor.memory": f"{self.host.heap_mb}m",
            "spark.executor.extraJavaOptions": " ".join(java),
        }

    def environment(self) -> dict[str, str]:
        """Return the environment in which an unchanged script, or `penstock run`, takes these settings.

        Spark reads them as its defaults: what a script sets itself has precedence.
        """
        return {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(self._conf_directory),
            "SPARK_LOCAL_IP": _LOOPBACK,
        }

    def shape(
        self, name: str = "penstock", executors: int | None = None, conf: Mapping[str, str] | None = None
    ) -> ClusterShape:
        """Return the shape with which `cluster` and `start_cluster` start a session of this process here."""
        count = len(self.workers) if executors is None else executors
        settings = {**self.conf(), **(conf or {})}
        url = settings.pop("spark.master")
        return ClusterShape(count, self.host.cores, self.host.heap_mb, name, conf=settings, url=url)

    @property
    def _conf_directory(self) -> Path:
        return self._directory / "conf"

    def _write_conf(self) -> None:
        self._conf_directory.mkdir()
        lines = (f"{key} {value}\n" for key, value in self.conf().items())
        (self._conf_directory / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")

    def _check_room(self, count: int, shape: HostShape) -> None:
        hosts = [host.shape for host in self._hosts.values() if host.is_alive()] + [shape] * count
        wanted, cores = sum(host.cpu for host in hosts), _count_cores()
        if wanted > cores:
            raise BadInput(
                f"{len(hosts)} workers want {wanted:g} cores, the machine has {cores}: they would slow each "
                "other down; take fewer, or a smaller cpu"
            )
        if len(self._hosts) + count > MOST_WORKERS:
            raise BadInput(f"a proving ground has addresses for {MOST_WORKERS} workers")

    def _make_host(self, shape: HostShape) -> GroundHost:
        number = len(self._hosts) + 1
        name = f"worker-{number}"
        host = GroundHost(name, f"{_NETWORK}.{number}", shape, self._hierarchy.make(f"{self._name}-{name}"))
        self._cleanup.callback(host.remove)
        self._hosts[name] = host
        return host

    def _start_master(self) -> None:
        group = self._hierarchy.make(f"{self._name}-master")
        self._cleanup.callback(group.remove)
        arguments = ("--host", _LOOPBACK, "--port", str(self._port), "--webui-port", str(self._page_port))
        command = self._command("master.Master", False, *arguments)
        master = start_server(group.enter(command), self._server_environment("master"), self._log("master"))
        self._cleanup.callback(master.wait)
        self._cleanup.callback(group.kill)
        self._await("the master", lambda: self._list_registered() is not None, lambda: master.poll() is None)

    def _start_worker(self, host: GroundHost) -> None:
        place = self._directory / host.name
        place.mkdir()
        shape = host.shape
        size = ("--cores", str(shape.cores), "--memory", f"{shape.memory_mb}m", "--work-dir", str(place))
        address = ("--host", host.address, "--port", "0", "--webui-port", "0")
        trained = not self._archive.exists() and host.name == "worker-1"
        command = self._command("worker.Worker", trained, *address, *size, self.url)
        host.start(command, self._server_environment(host.name), self._log(host.name))
        if trained:
            self._cleanup.callback(self._archive.keep)
            self._cleanup.callback(host.stop)

    def _command(self, server: str, trained: bool, *arguments: str) -> list[str]:
        archive = self._archive.training if trained else self._archive.options
        java = (find_java(), f"-Xmx{DAEMON_HEAP_MB}m", "-XX:ActiveProcessorCount=1", *LIGHT_JVM.split())
        setting = "-Dspark.master.rest.enabled=false"
        place = ("-cp", self._archive.class_path)
        return [*java, *archive, setting, *place, f"org.apache.spark.deploy.{server}", *arguments]

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _server_environment(self, name: str) -> dict[str, str]:
        """Return what a server, and an executor that it starts, sees: files go to the ground's directory."""
        return {
            **os.environ,
            "SPARK_HOME": str(find_spark()),
            # without it a worker looks for the directories of a build of Spark when it starts an executor
            "SPARK_SCALA_VERSION": _find_scala_version(),
            "SPARK_CONF_DIR": str(self._archive.configuration),
            "SPARK_LOCAL_DIRS": str(self._directory / name),
        }

    def _list_registered(self) -> set[str] | None:
        """Return the addresses of the workers that the master has; None while it does not answer."""
        try:
            with urllib.request.urlopen(self.page, timeout=5) as answer:
                workers = orjson.loads(answer.read())["workers"]
        except OSError:
            return None
        return {str(worker["host"]) for worker in workers if worker["state"] == "ALIVE"}

    def _await(self, what: str, is_there: Callable[[], bool], is_alive: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_there():
            if not is_alive() or time.monotonic() > deadline:
                tails = "\n".join(read_tail(file) for file in sorted(self._directory.glob("*.log")))
                raise ActionFailed(f"{what} did not start:\n{tails}")
            time.sleep(_POLL_SECONDS)

    def _start_watcher(self) -> None:
        watcher = threading.Thread(target=self._watch, name="proving-ground", daemon=True)
        watcher.start()
        self._cleanup.callback(watcher.join)
        self._cleanup.callback(self._stopped.set)

    def _watch(self) -> None:
        while not self._stopped.wait(EVERY_SECONDS):
            for host in list(self._hosts.values()):
                try:
                    host.look()
                except Exception:
                    log.exception("%s cannot be watched", host.name)

    def _find(self, worker: str) -> GroundHost:
        if worker not in self._hosts:
            raise NotFound(f"there is no {worker}; there are: {', '.join(self._hosts) or 'none yet'}")
        return self._hosts[worker]


def _find_scala_version() -> str:
    """Return the version of Scala that the name of a jar carries, as in spark-core_2.13-4.3.0.jar."""
    (jar,) = (find_spark() / "jars").glob("spark-core_*.jar")
    return jar.name.split("_")[1].split("-")[0]


def _count_cores() -> int:
    return len(psutil.Process().cpu_affinity())
