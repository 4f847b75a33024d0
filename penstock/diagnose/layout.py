"""Cuts a trace into windows that stand alone, so that each can be analysed by another task of a Spark job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np

from penstock.diagnose.activity_graph import GAP_THRESHOLD_US, ActivityGraph, activity_graph
from penstock.diagnose.participation import Window, windows
from penstock.diagnose.trace import EVENT_COLUMNS, Activity, Codes, Indices, Kind, Trace
from penstock.diagnose.trace_files import write_trace

_WINDOW = "window="
_START, _END = int(Kind.START), int(Kind.END)


def lay_out(trace: Trace, folder: Path, application: str, window_us: int) -> list[Path]:
    """Writes one Parquet file a window under `folder`/application=…, and gives their paths."""
    graph = activity_graph(trace, GAP_THRESHOLD_US)
    inside = open_after(graph.trace.worker, graph.trace.kind, len(graph.trace.workers))
    target = folder / f"application={application}"
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for window in windows(graph, window_us):
        paths.append(target / f"{_WINDOW}{window.start_us}.parquet")
        write_trace(cut(graph, window, inside), paths[-1])
    return paths


def laid_out_windows(folder: Path) -> list[tuple[int, Path]]:
    """Start and file of the windows that `lay_out` wrote to a folder; nothing where other files are there."""
    files = list(folder.glob("*.parquet")) if folder.is_dir() else []
    starts = [file.stem.removeprefix(_WINDOW) for file in files if file.stem.startswith(_WINDOW)]
    if len(starts) < len(files) or not all(start.removeprefix("-").isdigit() for start in starts):
        return []
    return sorted((int(start), file) for start, file in zip(starts, files, strict=True))


@numba.njit(cache=True)
def open_after(worker: Indices, kind: Codes, workers: int) -> Codes:
    """For each event whether its worker is inside an activity after it."""
    inside = np.zeros(len(worker), dtype=np.uint8)
    now = np.zeros(workers, dtype=np.uint8)
    for i in range(len(worker)):
        if kind[i] <= _END:
            now[worker[i]] = kind[i] == _START
        inside[i] = now[worker[i]]
    return inside


def cut(graph: ActivityGraph, window: Window, inside: Codes) -> Trace:
    """The window's events with, on its borders, projections of the edges that cross them (definition 10)."""
    rows = [*_at_start(graph, window, inside), *_at_end(graph, window, inside)]
    trace = graph.trace.rows(window.low, window.high)
    if not rows:
        return trace
    # A row's place: behind -1 come the events of the window, in between go the rows that close or open a gap.
    place = np.concatenate([np.arange(len(trace), dtype=np.float64), [row[0] for row in rows]])
    columns = {}
    for number, name in enumerate(EVENT_COLUMNS, start=1):
        own = getattr(trace, name)
        added = np.array([row[number] for row in rows], dtype=own.dtype)
        columns[name] = np.concatenate([own, added])[np.argsort(place, kind="stable")]
    return Trace(**columns, workers=trace.workers, works=trace.works)


Row = tuple[float, int, int, Kind, int, int, int, int]


def _at_start(graph: ActivityGraph, window: Window, inside: Codes) -> Iterator[Row]:
    trace, start = graph.trace, window.start_us
    for worker, before in enumerate(window.last_before.tolist()):
        after = int(graph.following[before]) if before >= 0 else -1
        if after < 0:
            continue
        kind, work = int(graph.edge_activity[after]), int(graph.edge_work[after])
        closes_itself = inside[before] or trace.kind[after] == Kind.END
        awaited = kind == Activity.WAITING and not closes_itself and after < window.high
        if awaited and trace.time_us[after] > start:
            # An event that ends a wait of its own begins no path: marks on the border would begin one.
            continue
        yield (-2.0, start, worker, Kind.START, kind, 0, -1, work)
        if not closes_itself and after < window.high:
            yield (after - window.low - 0.5, int(trace.time_us[after]), worker, Kind.END, kind, 0, -1, work)
    sources = graph.source[window.low : window.high]
    arriving = np.nonzero((sources >= 0) & (sources < window.low))[0] + window.low
    late = arriving[trace.time_us[arriving] > start]
    for send in [*graph.source[late].tolist(), *window.spanning.tolist()]:
        yield _message(trace, send, -1.0, start, Kind.SEND)


def _at_end(graph: ActivityGraph, window: Window, inside: Codes) -> Iterator[Row]:
    trace, end, behind = graph.trace, window.end_us, float(window.high - window.low)
    sends = np.nonzero(graph.target[window.low : window.high] >= window.high)[0] + window.low
    for send in [*sends.tolist(), *window.spanning.tolist()]:
        yield _message(trace, int(graph.target[send]), behind, end, Kind.RECEIVE)
    for worker, last in enumerate(window.last_inside.tolist()):
        after = int(graph.following[last]) if last >= 0 else -1
        if after < 0:
            continue
        kind, work = int(graph.edge_activity[after]), int(graph.edge_work[after])
        # A send that is waited behind goes on with its message alone: a mark behind it would be another end.
        sent = kind == Activity.WAITING and trace.kind[last] == Kind.SEND
        if not inside[last] and last >= window.low and not sent:
            yield (last - window.low + 0.25, int(trace.time_us[last]), worker, Kind.START, kind, 0, -1, work)
        yield (behind + 1, end, worker, Kind.END, kind, 0, -1, work)


def _message(trace: Trace, event: int, place: float, time: int, kind: Kind) -> Row:
    """A half of a message on the border, with all that its other half says of it."""
    names = ("worker", "activity", "correlation", "remote", "work")
    worker, activity, correlation, remote, work = (int(getattr(trace, name)[event]) for name in names)
    return (place, time, worker, kind, activity, correlation, remote, work)
