"""The four summaries of section 3.6 for one window or several joined, beside a conventional profile.

Compiled sums over the edges of a window give participation, busy time and who ran what in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from penstock.diagnose.path.counts import PathWindow
from penstock.diagnose.path.graph import GAP_THRESHOLD_US, ActivityGraph, Edges, build_graph
from penstock.diagnose.path.participation import (
    Instrumentation,
    Participation,
    cut_windows,
    measure_participation,
)
from penstock.diagnose.trace.events import (
    EVENT_COLUMNS,
    Activity,
    Floats,
    Kind,
    Times,
    Trace,
    Work,
    number_keys,
)
from penstock.diagnose.trace.memory import allocate_columns
from penstock.diagnose.trace.merge import Columns

_LABELS = tuple(kind.label for kind in Activity)

Name = TypeVar("Name", str, Work)
Key = TypeVar("Key", bound=Hashable)
_Code: TypeAlias = int | np.integer[Any]
_WAITING, _UNKNOWN, _SEND = int(Activity.WAITING), int(Activity.UNKNOWN), int(Kind.SEND)


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

    def sum_operators(self) -> dict[str, float]:
        """Return the whole share of each operator, on all workers that ran it."""
        return {name: each * self.instances.get(name, 1) for name, each in self.operator.items()}


def summarise(graph: ActivityGraph, found: Participation) -> Summary:
    """Sum participation by activity, worker, operator and channel (equation 3.4)."""
    trace, window = graph.trace, found.window
    names, code = _number_operators(trace.works)
    sums, channels = sum_window(graph, found, code, len(names))
    operator, instances = _sum_operators(trace, sums, names, code)
    return Summary(
        start_us=window.start_us,
        end_us=window.end_us,
        length_us=found.length_us,
        paths_log10=found.paths_log10,
        activity=_name_values(_LABELS, sums.activity),
        worker=_name_values(trace.workers, sums.worker),
        operator=operator,
        instances=instances,
        work=_name_values(trace.works, sums.work),
        communication=_rank_channels(trace.workers, channels),
        profile=BusyTimes(
            _name_values(_LABELS, sums.busy_activity / 1e6),
            _name_values(trace.workers, sums.busy_worker / 1e6),
            _name_values(trace.works, sums.busy_work / 1e6),
        ),
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


def _number_operators(works: Sequence[Work]) -> tuple[list[str], Times]:
    """Return the operators, and the number of each work's operator among them."""
    names = list(dict.fromkeys(item.operator for item in works))
    place = {name: index for index, name in enumerate(names)}
    return names, np.array([place[item.operator] for item in works], dtype=np.int64)


def _sum_operators(
    trace: Trace, sums: Sums, names: Sequence[str], code: Times
) -> tuple[dict[str, float], dict[str, int]]:
    """Return each operator's participation without task launches, divided by the workers that ran it."""
    work = np.where([item.phase == "task launch" for item in trace.works], 0.0, sums.work)
    instances = np.maximum(sums.ran.sum(axis=1), 1)
    # the driver launches the tasks of every operator, but is an instance of its own only
    if "driver" in trace.workers:
        shared = sums.ran[:, trace.workers.index("driver")] & (np.array(names) != "driver")
        instances = np.maximum(instances - shared, 1)
    shares = np.bincount(code, work, len(names)) / instances
    kept = [i for i in np.nonzero(shares > 0)[0].tolist() if names[i]]
    return {names[i]: float(shares[i]) for i in kept}, {names[i]: int(instances[i]) for i in kept}


def _rank_channels(workers: Sequence[str], channels: Channels) -> list[tuple[str, str, float]]:
    """Return sender, receiver and participation of each channel, the largest first."""
    count = len(workers)
    distinct, code = number_keys(channels.key, count**2)
    total = np.bincount(code, channels.share, len(distinct))
    order = np.argsort(-total, kind="stable")
    sender, receiver = np.divmod(distinct[order], max(count, 1))
    return [
        (workers[source], workers[target], share)
        for source, target, share in zip(
            sender.tolist(), receiver.tolist(), total[order].tolist(), strict=True
        )
    ]


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


class Sums(NamedTuple):
    """Participation and busy microseconds by activity, worker and work, and which worker ran which operator.

    Messages count in `activity` only.
    """

    activity: Floats
    worker: Floats
    work: Floats
    busy_activity: Times
    busy_worker: Times
    busy_work: Times
    ran: npt.NDArray[np.bool_]


class Channels(NamedTuple):
    """The messages that are on a critical path: sender · workers + receiver, and participation."""

    key: Times
    share: Floats


def sum_window(
    graph: ActivityGraph, found: Participation, operator: Times, operators: int
) -> tuple[Sums, Channels]:
    """Sum over the edges of a window; `operator` has the number of the operator of each work."""
    trace, window = graph.trace, found.window
    columns = Columns._make(getattr(trace, name) for name in EVENT_COLUMNS)
    edges = Edges(
        graph.previous, graph.following, graph.source, graph.target, graph.edge_activity, graph.edge_work
    )
    sizes = (len(Activity), len(trace.workers), len(trace.works))
    ran = np.zeros((operators, len(trace.workers)), dtype=np.bool_)
    sums = Sums._make(
        [*(np.zeros(size) for size in sizes), *(np.zeros(size, dtype=np.int64) for size in sizes), ran]
    )
    # room for the message of each event, and for those that are under way during all of the window
    channels = Channels._make(
        allocate_columns(window.high - window.low + len(window.spanning), np.int64, np.float64)
    )
    _sum_inside(columns, edges, window, found.local, operator, sums)
    _sum_crossing(columns, edges, window, found.crossing, operator, sums)
    number = _sum_messages(columns, window, found.message, found.spanning, sums, channels)
    return sums, Channels(channels.key[:number], channels.share[:number])


@numba.njit(cache=True, inline="always")
def _add_edge(kind: _Code, worker: _Code, work: _Code, spent: int, operator: Times, sums: Sums) -> None:
    """Add the time of an edge."""
    sums.busy_activity[kind] += spent
    if kind != _WAITING:
        sums.busy_worker[worker] += spent
        sums.busy_work[work] += spent
        if spent > 0 and kind != _UNKNOWN:
            sums.ran[operator[work], worker] = True


@numba.njit(cache=True)
def _sum_inside(
    columns: Columns, edges: Edges, window: PathWindow, local: Floats, operator: Times, sums: Sums
) -> None:
    """Add the worker edges into the events of a window."""
    time, start, low = columns.time, window.start_us, np.uint64(window.low)
    by_activity, by_worker, by_work = sums.activity, sums.worker, sums.work
    for i in range(low, np.uint64(window.high)):
        p, share = edges.previous[i], local[i - low]
        w, kind, work = np.uint32(columns.worker[i]), edges.activity[i], np.uint32(edges.work[i])
        by_activity[kind] += share
        by_worker[w] += share
        by_work[work] += share
        if p >= 0:
            spent = time[i] - max(time[np.uint32(p)], start)
            _add_edge(kind, w, work, spent, operator, sums)


@numba.njit(cache=True)
def _sum_crossing(
    columns: Columns, edges: Edges, window: PathWindow, crossing: Floats, operator: Times, sums: Sums
) -> None:
    """Add each worker's edge across the end of a window."""
    for w in range(len(window.last_inside)):
        last = window.last_inside[w]
        head = edges.following[last] if last >= 0 else -1
        if head >= 0:
            kind, work = edges.activity[head], edges.work[head]
            sums.activity[kind] += crossing[w]
            sums.worker[w] += crossing[w]
            sums.work[work] += crossing[w]
            spent = window.end_us - max(columns.time[last], window.start_us)
            _add_edge(kind, w, work, max(spent, 0), operator, sums)


@numba.njit(cache=True)
def _sum_messages(
    columns: Columns, window: PathWindow, message: Floats, spanning: Floats, sums: Sums, channels: Channels
) -> int:
    """Add the messages of a window to the activities, and list those on a critical path; return how many."""
    number, workers = 0, len(sums.worker)
    for place in range(len(message) + len(spanning)):
        inside = place < len(message)
        share = message[place] if inside else spanning[place - len(message)]
        if share > 0:
            i = window.low + place if inside else window.spanning[place - len(message)]
            own, other = np.int64(columns.worker[i]), np.int64(columns.remote[i])
            sender, receiver = (own, other) if columns.kind[i] == _SEND else (other, own)
            channels.key[number], channels.share[number] = sender * workers + receiver, share
            sums.activity[columns.activity[i]] += share
            number += 1
    return number
