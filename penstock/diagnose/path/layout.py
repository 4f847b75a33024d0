"""Cut a trace into windows that stand alone, so that tasks of a Spark job can analyse them in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np

from penstock.diagnose.path.counts import PathWindow
from penstock.diagnose.path.graph import GAP_THRESHOLD_US, ActivityGraph, build_graph
from penstock.diagnose.path.participation import cut_windows
from penstock.diagnose.trace.events import EVENT_COLUMNS, Activity, Codes, Indices, Kind, Trace, write_trace

_WINDOW = "window="
_START, _END = int(Kind.START), int(Kind.END)


def lay_out(trace: Trace, folder: Path, application: str, window_us: int) -> list[Path]:
    """Write one Parquet file for each window under `folder`/application=…, and return their paths."""
    graph = build_graph(trace, GAP_THRESHOLD_US)
    inside = mark_open(graph.trace.worker, graph.trace.kind, len(graph.trace.workers))
    target = folder / f"application={application}"
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for window in cut_windows(graph, window_us):
        paths.append(target / f"{_WINDOW}{window.start_us}.parquet")
        write_trace(cut_out_window(graph, window, inside), paths[-1])
    return paths


def find_laid_out(folder: Path) -> list[tuple[int, Path]]:
    """Return start and file of the windows that `lay_out` wrote; none if the folder has other files too."""
    files = list(folder.glob("*.parquet")) if folder.is_dir() else []
    starts = [file.stem.removeprefix(_WINDOW) for file in files if file.stem.startswith(_WINDOW)]
    if len(starts) < len(files) or not all(start.removeprefix("-").isdigit() for start in starts):
        return []
    return sorted((int(start), file) for start, file in zip(starts, files, strict=True))


@numba.njit(cache=True)
def mark_open(worker: Indices, kind: Codes, workers: int) -> Codes:
    """Return for each event whether its worker is inside an activity after it."""
    inside = np.zeros(len(worker), dtype=np.uint8)
    now = np.zeros(workers, dtype=np.uint8)
    for i in range(len(worker)):
        if kind[i] <= _END:
            now[worker[i]] = kind[i] == _START
        inside[i] = now[worker[i]]
    return inside


def cut_out_window(graph: ActivityGraph, window: PathWindow, inside: Codes) -> Trace:
    """Return the window's events and, on its borders, projections of edges across them (definition 10)."""
    rows = [*_project_start(graph, window, inside), *_project_end(graph, window, inside)]
    trace = graph.trace.rows(window.low, window.high)
    if not rows:
        return trace
    # places from 0 on are the window's events; fractions are rows between them that open or close a gap
    place = np.concatenate([np.arange(len(trace), dtype=np.float64), [row[0] for row in rows]])
    columns = {}
    for number, name in enumerate(EVENT_COLUMNS, start=1):
        own = getattr(trace, name)
        added = np.array([row[number] for row in rows], dtype=own.dtype)
        columns[name] = np.concatenate([own, added])[np.argsort(place, kind="stable")]
    return Trace(**columns, workers=trace.workers, works=trace.works)


Row = tuple[float, int, int, Kind, int, int, int, int]


def _project_start(graph: ActivityGraph, window: PathWindow, inside: Codes) -> Iterator[Row]:
    trace, start = graph.trace, window.start_us
    for worker, before in enumerate(window.last_before.tolist()):
        after = int(graph.following[before]) if before >= 0 else -1
        if after < 0:
            continue
        kind, work = int(graph.edge_activity[after]), int(graph.edge_work[after])
        closes_itself = inside[before] or trace.kind[after] == Kind.END
        awaited = kind == Activity.WAITING and not closes_itself and after < window.high
        if awaited and trace.time_us[after] > start:
            # an event that ends a wait begins no path, but a mark on the border would begin one
            continue
        yield (-2.0, start, worker, Kind.START, kind, 0, -1, work)
        if not closes_itself and after < window.high:
            yield (after - window.low - 0.5, int(trace.time_us[after]), worker, Kind.END, kind, 0, -1, work)
    sources = graph.source[window.low : window.high]
    arriving = np.nonzero((sources >= 0) & (sources < window.low))[0] + window.low
    late = arriving[trace.time_us[arriving] > start]
    for send in [*graph.source[late].tolist(), *window.spanning.tolist()]:
        yield _project_message(trace, send, -1.0, start, Kind.SEND)


def _project_end(graph: ActivityGraph, window: PathWindow, inside: Codes) -> Iterator[Row]:
    trace, end, behind = graph.trace, window.end_us, float(window.high - window.low)
    sends = np.nonzero(graph.target[window.low : window.high] >= window.high)[0] + window.low
    for send in [*sends.tolist(), *window.spanning.tolist()]:
        yield _project_message(trace, int(graph.target[send]), behind, end, Kind.RECEIVE)
    for worker, last in enumerate(window.last_inside.tolist()):
        after = int(graph.following[last]) if last >= 0 else -1
        if after < 0:
            continue
        kind, work = int(graph.edge_activity[after]), int(graph.edge_work[after])
        # a path through a send before a wait goes on with its message only: a mark would be a second end
        sent = kind == Activity.WAITING and trace.kind[last] == Kind.SEND
        if not inside[last] and last >= window.low and not sent:
            yield (last - window.low + 0.25, int(trace.time_us[last]), worker, Kind.START, kind, 0, -1, work)
        yield (behind + 1, end, worker, Kind.END, kind, 0, -1, work)


def _project_message(trace: Trace, event: int, place: float, time: int, kind: Kind) -> Row:
    """Return one half of a message on the border, with the columns of its event."""
    names = ("worker", "activity", "correlation", "remote", "work")
    worker, activity, correlation, remote, work = (int(getattr(trace, name)[event]) for name in names)
    return (place, time, worker, kind, activity, correlation, remote, work)
