"""A trace for Perfetto (Chrome's JSON): one track a worker, messages as arrows, criticality as colour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.diagnose.diagnosis import Diagnosis
from penstock.diagnose.trace import Activity

_MOST_EVENTS = 500_000
_CRITICAL, _ORDINARY = "terrible", "grey"


def perfetto_trace(diagnosis: Diagnosis) -> dict[str, Any]:
    """The JSON object that Perfetto opens; what is on a critical path is marked, with its participation."""
    return {"displayTimeUnit": "ms", "traceEvents": list(_events(diagnosis))}


def _events(diagnosis: Diagnosis) -> Iterator[dict[str, Any]]:
    trace = diagnosis.graph.trace
    yield {
        "ph": "M",
        "pid": 1,
        "name": "process_name",
        "args": {"name": diagnosis.name or diagnosis.application},
    }
    for number, worker in enumerate(trace.workers):
        yield {"ph": "M", "pid": 1, "tid": number, "name": "thread_name", "args": {"name": worker}}
    window = diagnosis.critical.window
    events = range(window.low, min(window.high, window.low + _MOST_EVENTS))
    on_path = set(np.asarray(diagnosis.path_events).tolist())
    for event in events:
        yield from _edge(diagnosis, event, event in on_path)
        yield from _arrow(diagnosis, event)


def _edge(diagnosis: Diagnosis, event: int, on_path: bool) -> Iterator[dict[str, Any]]:
    graph, trace = diagnosis.graph, diagnosis.graph.trace
    before, kind = int(graph.previous[event]), Activity(graph.edge_activity[event])
    if before < 0 or trace.time_us[event] == trace.time_us[before] or kind == Activity.WAITING:
        return
    work, share = (
        trace.works[graph.edge_work[event]],
        float(diagnosis.critical.local[event - _low(diagnosis)]),
    )
    yield {
        "ph": "X",
        "pid": 1,
        "tid": int(trace.worker[event]),
        "ts": int(trace.time_us[before]),
        "dur": int(trace.time_us[event] - trace.time_us[before]),
        "name": work.phase or kind.label,
        "cat": "critical" if share > 0 else kind.label,
        "cname": _CRITICAL if share > 0 else _ORDINARY,
        "args": {"operator": work.operator, "critical participation": share, "on the drawn path": on_path},
    }


def _arrow(diagnosis: Diagnosis, event: int) -> Iterator[dict[str, Any]]:
    graph, trace = diagnosis.graph, diagnosis.graph.trace
    source = int(graph.source[event])
    share = float(diagnosis.critical.message[event - _low(diagnosis)])
    if source < 0 or share <= 0:
        return
    shared = {"pid": 1, "cat": "critical message", "name": Activity(trace.activity[event]).label, "id": event}
    yield shared | {"ph": "s", "tid": int(trace.worker[source]), "ts": int(trace.time_us[source])}
    yield shared | {"ph": "f", "bp": "e", "tid": int(trace.worker[event]), "ts": int(trace.time_us[event])}


def _low(diagnosis: Diagnosis) -> int:
    return diagnosis.critical.window.low
