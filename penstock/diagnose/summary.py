"""The four summaries of section 3.6 for one window, and conventional profiling beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from penstock.diagnose.activity_graph import GAP_THRESHOLD_US, ActivityGraph, activity_graph
from penstock.diagnose.participation import Instrumentation, Participation, participation, windows
from penstock.diagnose.trace import Activity, Floats, Indices, Kind, Trace, Work

Places = npt.NDArray[np.integer]
Name = TypeVar("Name", str, Work)


@dataclass(frozen=True, slots=True)
class Profile:
    """Conventional profiling: the seconds of every activity, whether or not anyone waited for them."""

    activity: dict[str, float]
    worker: dict[str, float]
    work: dict[Work, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """Critical participation of one window, summed by activity, worker, operator and channel.

    `operator` is normalised by the workers that ran it; `work` is not, and tells operator and phase.
    """

    start_us: int
    end_us: int
    length_us: int
    paths_log10: float
    activity: dict[str, float]
    worker: dict[str, float]
    operator: dict[str, float]
    instances: dict[str, int]
    work: dict[Work, float]
    communication: list[tuple[str, str, float]]
    profile: Profile
    instrumentation: Instrumentation
    events: int


@dataclass(frozen=True, slots=True)
class _Edges:
    """Worker edges of a window as columns."""

    worker: Indices
    activity: Places
    work: Indices
    share: Floats
    seconds: Floats


def summarise(graph: ActivityGraph, found: Participation) -> Summary:
    """Sums participation over the groups that people ask for (equation 3.4)."""
    trace, window = graph.trace, found.window
    edges = _edges(graph, found)
    activity = _sums(edges.activity, edges.share, len(Activity))
    activity += _message_shares(graph, found)
    by_worker = _sums(edges.worker, edges.share, len(trace.workers))
    work = _sums(edges.work, edges.share, len(trace.works))
    operator, instances = _operators(graph, edges, work)
    return Summary(
        start_us=window.start_us,
        end_us=window.end_us,
        length_us=found.length_us,
        paths_log10=found.paths_log10,
        activity={kind.label: float(activity[kind]) for kind in Activity if activity[kind] > 0},
        worker=_named(trace.workers, by_worker),
        operator=operator,
        instances=instances,
        work=_named(trace.works, work),
        communication=_channels(graph, found),
        profile=_profile(graph, edges),
        instrumentation=found.instrumentation,
        events=window.high - window.low,
    )


def window_summaries(
    trace: Trace, length_us: int | None = None, gap_threshold_us: int = GAP_THRESHOLD_US
) -> Iterator[Summary]:
    """The summaries of a trace, window after window: events in, participation out."""
    yield from graph_summaries(activity_graph(trace, gap_threshold_us), length_us)


def graph_summaries(
    graph: ActivityGraph, length_us: int | None, start_us: int | None = None, end_us: int | None = None
) -> Iterator[Summary]:
    """The summaries of a graph between two times, window after window."""
    for window in windows(graph, length_us, start_us, end_us):
        yield summarise(graph, participation(graph, window))


def _edges(graph: ActivityGraph, found: Participation) -> _Edges:
    """Every worker edge of the window, those over its end included, with its projected length."""
    trace, window = graph.trace, found.window
    inside = slice(window.low, window.high)
    previous = graph.previous[inside]
    begins = np.maximum(trace.time_us[previous], window.start_us)
    seconds = np.where(previous >= 0, trace.time_us[inside] - begins, 0) / 1e6
    last = window.last_inside
    ends = np.where(last >= 0, graph.following[last], -1)
    over = np.nonzero(ends >= 0)[0]
    tail = (window.end_us - np.maximum(trace.time_us[last[over]], window.start_us)) / 1e6
    return _Edges(
        worker=np.concatenate([trace.worker[inside], over.astype(np.int32)]),
        activity=np.concatenate([graph.edge_activity[inside], graph.edge_activity[ends[over]]]),
        work=np.concatenate([graph.edge_work[inside], graph.edge_work[ends[over]]]),
        share=np.concatenate([found.local, found.crossing[over]]),
        seconds=np.concatenate([seconds, np.maximum(tail, 0.0)]),
    )


def _message_shares(graph: ActivityGraph, found: Participation) -> Floats:
    trace, window = graph.trace, found.window
    inside = trace.activity[window.low : window.high]
    shares = _sums(inside, found.message, len(Activity))
    shares += _sums(trace.activity[window.spanning], found.spanning, len(Activity))
    return shares


def _operators(graph: ActivityGraph, edges: _Edges, work: Floats) -> tuple[dict[str, float], dict[str, int]]:
    """Participation of each operator divided by the workers that ran it; but its launches."""
    trace = graph.trace
    names = list(dict.fromkeys(item.operator for item in trace.works))
    place = {name: index for index, name in enumerate(names)}
    code = np.array([place[item.operator] for item in trace.works], dtype=np.int64)
    useful = (edges.seconds > 0) & (edges.activity != Activity.WAITING) & (edges.activity != Activity.UNKNOWN)
    ran = np.zeros((len(names), len(trace.workers)), dtype=bool)
    ran[code[edges.work[useful]], edges.worker[useful]] = True
    work = np.where([item.phase == "task launch" for item in trace.works], 0.0, work)
    instances = np.maximum(ran.sum(axis=1), 1)
    # The driver launches the tasks of every operator and is not an instance of any but its own.
    if "driver" in trace.workers:
        shared = ran[:, trace.workers.index("driver")] & (np.array(names) != "driver")
        instances = np.maximum(instances - shared, 1)
    shares = _sums(code, work, len(names)) / instances
    kept = [i for i in np.nonzero(shares > 0)[0] if names[i]]
    return {names[i]: float(shares[i]) for i in kept}, {names[i]: int(instances[i]) for i in kept}


def _channels(graph: ActivityGraph, found: Participation) -> list[tuple[str, str, float]]:
    trace, window = graph.trace, found.window
    events = np.concatenate([np.nonzero(found.message > 0)[0] + window.low, window.spanning])
    share = np.concatenate([found.message[found.message > 0], found.spanning])
    is_send = trace.kind[events] == Kind.SEND
    own, other = trace.worker[events], trace.remote[events]
    workers = len(trace.workers)
    key = np.where(is_send, own, other).astype(np.int64) * workers + np.where(is_send, other, own)
    distinct, code = np.unique(key, return_inverse=True)
    total = _sums(code, share, len(distinct))
    order = np.argsort(-total, kind="stable")
    return [
        (trace.workers[distinct[i] // workers], trace.workers[distinct[i] % workers], float(total[i]))
        for i in order
        if total[i] > 0
    ]


def _profile(graph: ActivityGraph, edges: _Edges) -> Profile:
    busy = edges.activity != Activity.WAITING
    activity = _sums(edges.activity, edges.seconds, len(Activity))
    worker = _sums(edges.worker[busy], edges.seconds[busy], len(graph.trace.workers))
    work = _sums(edges.work[busy], edges.seconds[busy], len(graph.trace.works))
    return Profile(
        {kind.label: float(activity[kind]) for kind in Activity if activity[kind] > 0},
        _named(graph.trace.workers, worker),
        _named(graph.trace.works, work),
    )


def _sums(codes: Places, weights: Floats, size: int) -> Floats:
    return np.asarray(np.bincount(codes, weights, size), dtype=np.float64)


def _named(names: tuple[Name, ...], values: Floats) -> dict[Name, float]:
    return {names[i]: float(values[i]) for i in np.nonzero(values > 0)[0]}
