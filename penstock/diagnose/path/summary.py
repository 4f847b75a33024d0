"""The four summaries of section 3.6 for one window or several joined, beside a conventional profile."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from penstock.diagnose.path.graph import GAP_THRESHOLD_US, ActivityGraph, build_graph
from penstock.diagnose.path.participation import (
    Instrumentation,
    Participation,
    cut_windows,
    measure_participation,
)
from penstock.diagnose.trace.events import Activity, Floats, Indices, Kind, Trace, Work, number_keys

_LABELS = tuple(kind.label for kind in Activity)

Places = npt.NDArray[np.integer]
Name = TypeVar("Name", str, Work)
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class BusyTimes:
    """A conventional profile: the seconds of every activity, whether or not anyone waited for it."""

    activity: dict[str, float]
    worker: dict[str, float]
    work: dict[Work, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """Critical participation of one window, summed by activity, worker, operator and channel.

    `operator` is divided by the number of workers that ran it; `work`, by operator and phase, is not.
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
    profile: BusyTimes
    instrumentation: Instrumentation
    events: int


@dataclass(frozen=True, slots=True)
class _Edges:
    """The worker edges of a window as columns."""

    worker: Indices
    activity: Places
    work: Indices
    share: Floats
    seconds: Floats


def summarise(graph: ActivityGraph, found: Participation) -> Summary:
    """Sum participation by activity, worker, operator and channel (equation 3.4)."""
    trace, window = graph.trace, found.window
    edges = _collect_edges(graph, found)
    activity = _sum_by_code(edges.activity, edges.share, len(Activity))
    activity += _sum_messages(graph, found)
    by_worker = _sum_by_code(edges.worker, edges.share, len(trace.workers))
    work = _sum_by_code(edges.work, edges.share, len(trace.works))
    operator, instances = _sum_operators(graph, edges, work)
    return Summary(
        start_us=window.start_us,
        end_us=window.end_us,
        length_us=found.length_us,
        paths_log10=found.paths_log10,
        activity=_name_values(_LABELS, activity),
        worker=_name_values(trace.workers, by_worker),
        operator=operator,
        instances=instances,
        work=_name_values(trace.works, work),
        communication=_sum_channels(graph, found),
        profile=_sum_busy_times(graph, edges),
        instrumentation=found.instrumentation,
        events=window.high - window.low,
    )


def summarise_trace(
    trace: Trace, length_us: int | None = None, gap_threshold_us: int = GAP_THRESHOLD_US
) -> Iterator[Summary]:
    """Yield the summaries of a trace, window after window."""
    yield from summarise_graph(build_graph(trace, gap_threshold_us), length_us)


def summarise_graph(
    graph: ActivityGraph, length_us: int | None, start_us: int | None = None, end_us: int | None = None
) -> Iterator[Summary]:
    """Yield the summaries of a graph between two times, window after window."""
    for window in cut_windows(graph, length_us, start_us, end_us):
        yield summarise(graph, measure_participation(graph, window))


def _collect_edges(graph: ActivityGraph, found: Participation) -> _Edges:
    """Return every worker edge of the window, also those across its end, with its length inside."""
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


def _sum_messages(graph: ActivityGraph, found: Participation) -> Floats:
    trace, window = graph.trace, found.window
    inside = trace.activity[window.low : window.high]
    shares = _sum_by_code(inside, found.message, len(Activity))
    shares += _sum_by_code(trace.activity[window.spanning], found.spanning, len(Activity))
    return shares


def _sum_operators(
    graph: ActivityGraph, edges: _Edges, work: Floats
) -> tuple[dict[str, float], dict[str, int]]:
    """Return each operator's participation without task launches, divided by the workers that ran it."""
    trace = graph.trace
    names = list(dict.fromkeys(item.operator for item in trace.works))
    place = {name: index for index, name in enumerate(names)}
    code = np.array([place[item.operator] for item in trace.works], dtype=np.int64)
    useful = (edges.seconds > 0) & (edges.activity != Activity.WAITING) & (edges.activity != Activity.UNKNOWN)
    ran = np.zeros((len(names), len(trace.workers)), dtype=bool)
    ran[code[edges.work[useful]], edges.worker[useful]] = True
    work = np.where([item.phase == "task launch" for item in trace.works], 0.0, work)
    instances = np.maximum(ran.sum(axis=1), 1)
    # the driver launches the tasks of every operator, but is an instance of its own only
    if "driver" in trace.workers:
        shared = ran[:, trace.workers.index("driver")] & (np.array(names) != "driver")
        instances = np.maximum(instances - shared, 1)
    shares = _sum_by_code(code, work, len(names)) / instances
    kept = [i for i in np.nonzero(shares > 0)[0] if names[i]]
    return {names[i]: float(shares[i]) for i in kept}, {names[i]: int(instances[i]) for i in kept}


def _sum_channels(graph: ActivityGraph, found: Participation) -> list[tuple[str, str, float]]:
    trace, window = graph.trace, found.window
    events = np.concatenate([np.nonzero(found.message > 0)[0] + window.low, window.spanning])
    share = np.concatenate([found.message[found.message > 0], found.spanning])
    is_send = trace.kind[events] == Kind.SEND
    own, other = trace.worker[events], trace.remote[events]
    workers = len(trace.workers)
    key = np.where(is_send, own, other).astype(np.int64) * workers + np.where(is_send, other, own)
    distinct, code = number_keys(key, workers**2)
    total = _sum_by_code(code, share, len(distinct))
    order = np.argsort(-total, kind="stable")
    return [
        (trace.workers[distinct[i] // workers], trace.workers[distinct[i] % workers], float(total[i]))
        for i in order
        if total[i] > 0
    ]


def _sum_busy_times(graph: ActivityGraph, edges: _Edges) -> BusyTimes:
    busy = edges.activity != Activity.WAITING
    activity = _sum_by_code(edges.activity, edges.seconds, len(Activity))
    worker = _sum_by_code(edges.worker[busy], edges.seconds[busy], len(graph.trace.workers))
    work = _sum_by_code(edges.work[busy], edges.seconds[busy], len(graph.trace.works))
    return BusyTimes(
        _name_values(_LABELS, activity),
        _name_values(graph.trace.workers, worker),
        _name_values(graph.trace.works, work),
    )


def _sum_by_code(codes: Places, weights: Floats, size: int) -> Floats:
    return np.asarray(np.bincount(codes, weights, size), dtype=np.float64)


def _name_values(names: tuple[Name, ...], values: Floats) -> dict[Name, float]:
    return {names[i]: float(values[i]) for i in np.nonzero(values > 0)[0]}


def join_summaries(parts: Sequence[Summary]) -> Summary:
    """Join the summaries of parts of a time: shares are means by the length of critical paths, times add up.

    The number of paths through all parts is unknown: NaN.
    """

    def mean(shares: Callable[[Summary], Mapping[Key, float]]) -> dict[Key, float]:
        return mix_shares((shares(part), part.length_us) for part in parts)

    channels = mean(lambda part: {(source, target): share for source, target, share in part.communication})
    found = [astuple(part.instrumentation) for part in parts]
    return Summary(
        start_us=parts[0].start_us,
        end_us=parts[-1].end_us,
        length_us=sum(part.length_us for part in parts),
        paths_log10=math.nan,
        activity=mean(lambda part: part.activity),
        worker=mean(lambda part: part.worker),
        operator=mean(lambda part: part.operator),
        instances={
            name: max(part.instances.get(name, 0) for part in parts)
            for name in dict.fromkeys(name for part in parts for name in part.instances)
        },
        work=mean(lambda part: part.work),
        communication=[
            (*channel, share) for channel, share in sorted(channels.items(), key=lambda item: -item[1])
        ],
        profile=BusyTimes(
            _add_up(part.profile.activity for part in parts),
            _add_up(part.profile.worker for part in parts),
            _add_up(part.profile.work for part in parts),
        ),
        instrumentation=Instrumentation(*(sum(counts) for counts in zip(*found, strict=True))),
        events=sum(part.events for part in parts),
    )


def mix_shares(weighted: Iterable[tuple[Mapping[Key, float], float]]) -> dict[Key, float]:
    """Return the mean of shares by weight; a missing share counts as 0."""
    given = list(weighted)
    total = sum(weight for _, weight in given) or 1.0
    return _add_up({key: share * weight / total for key, share in shares.items()} for shares, weight in given)


def _add_up(shares: Iterable[Mapping[Key, float]]) -> dict[Key, float]:
    total: dict[Key, float] = {}
    for each in shares:
        for key, value in each.items():
            total[key] = total.get(key, 0.0) + value
    return total
