"""Executors' own reports of heap, GC and CPU: sent by Spark's StatsD sink, received here by UDP.

Anybody on the machine can send to the port. Reports are believed if they begin with a secret, which Spark is
told in a file that only its user can read, and hides in its own pages.
"""

from __future__ import annotations

import math
import re
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.dataflow.window import ExecutorUse
from penstock.errors import ActionFailed

DRIVER = "driver"
HEAP_USED, HEAP_COMMITTED = "jvm.heap.used", "jvm.heap.committed"
CPU_NANOSECONDS = "JVMCPU.jvmCpuTime"
JVM_RESIDENT = "ExecutorMetrics.ProcessTreeJVMRSSMemory"
PYTHON_RESIDENT = "ExecutorMetrics.ProcessTreePythonRSSMemory"
OTHER_RESIDENT = "ExecutorMetrics.ProcessTreeOtherRSSMemory"
SPILLED = "executor.diskBytesSpilled"

WANTED = (
    r"(jvm\.heap\.(used|committed)|jvm\.[^.]+\.(count|time)|JVMCPU\.jvmCpuTime"
    r"|ExecutorMetrics\.ProcessTree\w+RSSMemory|executor\.diskBytesSpilled)$"
)
"""The metrics of an executor that are sent at all."""
_LINE = re.compile(
    rf"^(?P<namespace>.+)\.(?P<executor>{DRIVER}|\d{{1,9}})\.(?P<metric>{WANTED[:-1]}):(?P<value>-?[\d.]+)\|"
)
_COLLECTOR = re.compile(r"^jvm\.([^.]+)\.(count|time)$")
_SINK = re.compile(r"^spark\.metrics\.conf\.[^.]+\.sink\.(?P<name>[^.]+)\.(?P<option>\w+)$")
SINK = "spark.metrics.conf.*.sink.penstock_secret"
"""A sink of its own, beside any of the user's. Spark hides values of keys with `secret` in them."""
NAMESPACE_KEY = "spark.metrics.namespace"
MOST_EXECUTORS, MOST_METRICS, LONGEST_NAME = 10_000, 40, 100
"""Of an executor about 16 metrics are asked for; only names of Java's collectors and buffers are free."""


@dataclass(frozen=True, slots=True)
class Reported:
    """One value of one executor, and when it came."""

    at: float
    value: float


@dataclass(slots=True)
class _Executor:
    newest: dict[str, Reported] = field(default_factory=dict)
    before: dict[str, Reported] = field(default_factory=dict)


def metrics_conf(host: str, port: int, every_seconds: float = 5.0) -> dict[str, str]:
    """Return the Spark settings with which executors and driver report to this port."""
    return {
        f"{SINK}.class": "org.apache.spark.metrics.sink.StatsdSink",
        f"{SINK}.host": host,
        f"{SINK}.port": str(port),
        f"{SINK}.period": str(max(1, round(every_seconds))),
        f"{SINK}.unit": "seconds",
        f"{SINK}.regex": WANTED,
        "spark.metrics.conf.*.source.jvm.class": "org.apache.spark.metrics.source.JvmSource",
        "spark.executor.processTreeMetrics.enabled": "true",
    }


def secret_conf(secret: str) -> dict[str, str]:
    """Return the Spark settings that must stand on no command line: all users can read those."""
    return {f"{SINK}.prefix": secret}


@dataclass(frozen=True, slots=True)
class Sink:
    """A StatsD sink of Spark: the host that it sends to, and what it puts before every name."""

    host: str
    prefix: str


def find_sink(conf: Mapping[str, str], port: int) -> Sink | None:
    """Find the sink that sends to this port, among those that Spark was told of."""
    sinks: dict[str, dict[str, str]] = {}
    for key, value in conf.items():
        match = _SINK.match(key)
        if match is not None:
            sinks.setdefault(match["name"], {})[match["option"]] = value
    found = [one for one in sinks.values() if one.get("port") == str(port) and one.get("host")]
    return Sink(found[0]["host"], found[0].get("prefix", "")) if found else None


def name_namespace(conf: Mapping[str, str], application: str) -> str:
    """Name what Spark puts before an executor's number: the application's id, or what the user has set."""
    written = conf.get(NAMESPACE_KEY, application)
    return re.sub(r"\$\{(spark\.[^}]+)\}", lambda found: conf.get(found[1], ""), written)


class ExecutorBoard:
    """The newest value of each metric of each executor, of reports with the prefix and of one namespace.

    The namespace counts where it is known. One thread may take in while another asks.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.namespace: str | None = None
        self._executors: dict[str, _Executor] = {}

    def take_in(self, now: float, datagram: bytes) -> bool:
        """Keep what a datagram says; False for what is not a metric of ours."""
        match = _LINE.match(datagram.decode("utf-8", "replace").strip())
        if match is None or not self._is_ours(match["namespace"]) or len(match["metric"]) > LONGEST_NAME:
            return False
        try:
            value = float(match["value"])
        except ValueError:
            return False
        known = self._executors.get(match["executor"], _Executor())
        is_new = match["executor"] not in self._executors
        if not math.isfinite(value) or (is_new and len(self._executors) >= MOST_EXECUTORS):
            return False
        is_free = match["metric"] not in known.newest and _COLLECTOR.match(match["metric"])
        if is_free and len(known.newest) >= MOST_METRICS:
            return False
        known.newest[match["metric"]] = Reported(now, value)
        self._executors[match["executor"]] = known
        return True

    def __len__(self) -> int:
        return len(self._executors)

    def _is_ours(self, written: str) -> bool:
        start = f"{self.prefix}." if self.prefix else ""
        is_known = self.namespace is None or written[len(start) :] == self.namespace
        return written.startswith(start) and is_known

    def forget_others(self, executors: frozenset[str]) -> None:
        """Drop executors that are gone; the driver stays."""
        for name in set(self._executors) - executors - {DRIVER}:
            del self._executors[name]

    def use(self, executor: str, start: float, end: float) -> ExecutorUse | None:
        """Return what the executor used in [start, end); None where it has not reported since the start.

        Totals are compared with those of the call before, so each window is to be asked for once.
        """
        known = self._executors.get(executor)
        # a copy in one go: the thread that listens may add a metric meanwhile
        newest = dict(known.newest) if known is not None else {}
        now = {name: one for name, one in newest.items() if one.at >= start}
        if known is None or not now:
            return None
        before, known.before = known.before, newest
        seconds = end - start
        collectors = _collectors(now)
        return ExecutorUse(
            heap_used_bytes=_value(now, HEAP_USED),
            heap_committed_bytes=_value(now, HEAP_COMMITTED),
            resident_bytes=_resident(now),
            cpu_cores=_cpu(now, before),
            gc_seconds=_sum_rates(now, before, [f"{one}.time" for one in collectors]) * seconds / 1000,
            gc_count=_sum_rates(now, before, [f"{one}.count" for one in collectors]) * seconds,
            spilled_bytes=_rate(now, before, SPILLED) * seconds,
        )


def _collectors(now: Mapping[str, Reported]) -> list[str]:
    """Garbage collectors; buffer pools have a count and no time."""
    timed = [match[1] for match in map(_COLLECTOR.match, now) if match and match[2] == "time"]
    return [f"jvm.{name}" for name in timed]


def _resident(now: Mapping[str, Reported]) -> float:
    """Add up the process tree: JVM, Python workers, and what else it started; Spark says 0 for unknown."""
    total = sum(_value(now, name) for name in (JVM_RESIDENT, PYTHON_RESIDENT, OTHER_RESIDENT))
    return total if _value(now, JVM_RESIDENT) > 0 else math.nan


def _cpu(now: Mapping[str, Reported], before: Mapping[str, Reported]) -> float:
    """Cores that the JVM used; with Python workers beside it that is not what the executor used."""
    alone = _value(now, PYTHON_RESIDENT) == 0 and _value(now, JVM_RESIDENT) > 0
    return _rate(now, before, CPU_NANOSECONDS) / 1e9 if alone else math.nan


def _value(now: Mapping[str, Reported], name: str) -> float:
    return now[name].value if name in now else math.nan


def _rate(now: Mapping[str, Reported], before: Mapping[str, Reported], name: str) -> float:
    """Growth of a total a second, between the two times at which it was reported."""
    if name not in now or name not in before or now[name].at <= before[name].at:
        return math.nan
    grown = (now[name].value - before[name].value) / (now[name].at - before[name].at)
    # an executor's number may come again after a restart, and totals then begin anew
    return grown if grown >= 0 else math.nan


def _sum_rates(now: Mapping[str, Reported], before: Mapping[str, Reported], names: list[str]) -> float:
    return sum(_rate(now, before, name) for name in names) if names else math.nan


LARGEST_DATAGRAM = 8192
LOOK_EVERY_SECONDS = 0.5

_open: dict[int, MetricsListener] = {}
_opening = threading.Lock()


class MetricsListener:
    """Takes in datagrams in a daemon thread, for the board."""

    def __init__(self, host: str, port: int, secret: str | None = None) -> None:
        self.secret = secrets.token_hex(16) if secret is None else secret
        self.board = ExecutorBoard(self.secret)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise ActionFailed(
                f"cannot listen for executors on UDP {host}:{port}: {error.strerror}"
            ) from error
        self._socket.settimeout(LOOK_EVERY_SECONDS)
        self.host, self.port = self._socket.getsockname()[:2]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="penstock-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._stopping.set()
        self._thread.join(timeout=2 * LOOK_EVERY_SECONDS)
        self._socket.close()
        with _opening:
            _open.pop(self.port, None)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                datagram = self._socket.recv(LARGEST_DATAGRAM)
            except TimeoutError:
                continue
            except OSError:
                return
            self.board.take_in(time.time(), datagram)


def listener_on(host: str, port: int, secret: str | None = None) -> MetricsListener:
    """Return the listener of this process on that port, opened where there is none; port 0 takes a free one.

    The port must be open before Spark starts, and is used by whoever attaches to it later. Where no secret is
    given, one is drawn.
    """
    with _opening:
        known = _open.get(port)
        if known is not None:
            return known
        listener = MetricsListener(host, port, secret)
        _open[listener.port] = listener
        return listener


def address_for(master: str, environment_ip: str | None) -> str:
    """Return where executors reach this machine: on itself by loopback, else by the address of its name."""
    if environment_ip:
        return environment_ip
    if master.startswith("local"):
        return "127.0.0.1"
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
