"""What executors report of themselves through Spark's StatsD sink, and what it says of a window (pure).

Spark's status store tells peaks since the start of an executor, never what is committed or in use now; its
metrics system does, and any Spark can send it to a UDP port without another jar. Seen on Spark 4.3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.dataflow.window import ExecutorUse

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
"""What of an executor's metrics is sent at all."""
_LINE = re.compile(
    rf"^(?P<namespace>.+)\.(?P<executor>{DRIVER}|\d+)\.(?P<metric>{WANTED[:-1]}):(?P<value>-?[\d.]+)\|"
)
_COLLECTOR = re.compile(r"^jvm\.([^.]+)\.(count|time)$")
MOST_EXECUTORS = 10_000


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
    """The Spark settings with which executors and driver report to this port."""
    sink = "spark.metrics.conf.*.sink.statsd"
    return {
        f"{sink}.class": "org.apache.spark.metrics.sink.StatsdSink",
        f"{sink}.host": host,
        f"{sink}.port": str(port),
        f"{sink}.period": str(max(1, round(every_seconds))),
        f"{sink}.unit": "seconds",
        f"{sink}.regex": WANTED,
        "spark.metrics.conf.*.source.jvm.class": "org.apache.spark.metrics.source.JvmSource",
        "spark.executor.processTreeMetrics.enabled": "true",
    }


class ExecutorBoard:
    """The newest value of each metric of each executor; of one namespace alone, where that is known.

    One thread may take in while another asks.
    """

    def __init__(self) -> None:
        self.namespace: str | None = None
        self._executors: dict[str, _Executor] = {}

    def take_in(self, now: float, datagram: bytes) -> bool:
        """Keep what a datagram says; False for what is not a metric of ours."""
        match = _LINE.match(datagram.decode("utf-8", "replace").strip())
        if match is None or (self.namespace is not None and match["namespace"] != self.namespace):
            return False
        known = self._executors.get(match["executor"])
        if known is None:
            if len(self._executors) >= MOST_EXECUTORS:
                return False
            known = self._executors[match["executor"]] = _Executor()
        try:
            known.newest[match["metric"]] = Reported(now, float(match["value"]))
        except ValueError:
            return False
        return True

    def forget_others(self, executors: frozenset[str]) -> None:
        """Drop executors that are gone; the driver stays."""
        for name in set(self._executors) - executors - {DRIVER}:
            del self._executors[name]

    def use(self, executor: str, start: float, end: float) -> ExecutorUse | None:
        """What the executor used in [start, end); None where it has not reported since the start.

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
            gc_seconds=_added(now, before, [f"{one}.time" for one in collectors]) * seconds / 1000,
            gc_count=_added(now, before, [f"{one}.count" for one in collectors]) * seconds,
            spilled_bytes=_rate(now, before, SPILLED) * seconds,
        )


def _collectors(now: Mapping[str, Reported]) -> list[str]:
    """Garbage collectors; buffer pools have a count and no time."""
    timed = [match[1] for match in map(_COLLECTOR.match, now) if match and match[2] == "time"]
    return [f"jvm.{name}" for name in timed]


def _resident(now: Mapping[str, Reported]) -> float:
    """The process tree: JVM, Python workers, and what else it started; 0 is what Spark says for unknown."""
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


def _added(now: Mapping[str, Reported], before: Mapping[str, Reported], names: list[str]) -> float:
    return sum(_rate(now, before, name) for name in names) if names else math.nan
