"""What Spark measures of a task, under the names of the event log and of the status store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric: the task column it adds to, and the section and name that each of the two gives it."""

    column: str
    logged: tuple[str, str]
    live: tuple[str, str]
    unit: int = 1


_LOGGED_IN, _LOGGED_OUT = "Shuffle Read Metrics", "Shuffle Write Metrics"
_LIVE_IN, _LIVE_OUT = "shuffleReadMetrics", "shuffleWriteMetrics"
# Spark counts these in nanoseconds; columns are milliseconds.
_NANOSECONDS = 1_000_000
MEASURES = (
    Measure("deserialise", ("", "Executor Deserialize Time"), ("", "executorDeserializeTime")),
    Measure("run", ("", "Executor Run Time"), ("", "executorRunTime")),
    Measure("cpu", ("", "Executor CPU Time"), ("", "executorCpuTime"), _NANOSECONDS),
    Measure("gc", ("", "JVM GC Time"), ("", "jvmGcTime")),
    Measure("result_serialise", ("", "Result Serialization Time"), ("", "resultSerializationTime")),
    Measure("fetch_wait", (_LOGGED_IN, "Fetch Wait Time"), (_LIVE_IN, "fetchWaitTime")),
    Measure("remote_bytes", (_LOGGED_IN, "Remote Bytes Read"), (_LIVE_IN, "remoteBytesRead")),
    Measure("shuffle_read_bytes", (_LOGGED_IN, "Remote Bytes Read"), (_LIVE_IN, "remoteBytesRead")),
    Measure("shuffle_read_bytes", (_LOGGED_IN, "Local Bytes Read"), (_LIVE_IN, "localBytesRead")),
    Measure("shuffle_write", (_LOGGED_OUT, "Shuffle Write Time"), (_LIVE_OUT, "writeTime"), _NANOSECONDS),
    Measure("shuffle_written_bytes", (_LOGGED_OUT, "Shuffle Bytes Written"), (_LIVE_OUT, "bytesWritten")),
    Measure("records_in", (_LOGGED_IN, "Total Records Read"), (_LIVE_IN, "recordsRead")),
    Measure("records_in", ("Input Metrics", "Records Read"), ("inputMetrics", "recordsRead")),
)  # fmt: skip
_LOGGED = tuple((one.column, *one.logged, one.unit) for one in MEASURES)
_LIVE = tuple((one.column, *one.live, one.unit) for one in MEASURES)
_COLUMNS = tuple(dict.fromkeys(one.column for one in MEASURES))


def logged_measures(metrics: Fields) -> dict[str, int]:
    """The task columns that the metrics of an event log tell; what they lack is 0."""
    return _measures(metrics, _LOGGED)


def live_measures(metrics: Fields) -> dict[str, int]:
    """The task columns that the metrics of the status store tell; what they lack is 0."""
    return _measures(metrics, _LIVE)


def _measures(metrics: Fields, names: tuple[tuple[str, str, str, int], ...]) -> dict[str, int]:
    found = dict.fromkeys(_COLUMNS, 0)
    sections: dict[str, Fields] = {"": metrics}
    for column, section, name, unit in names:
        if section not in sections:
            sections[section] = metrics.get(section) or {}
        found[column] += int(sections[section].get(name, 0)) // unit
    return found
