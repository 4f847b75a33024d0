"""The four summaries of section 3.6 for one window or several joined, beside a conventional profile."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TypeVar

import numpy as np

from penstock.diagnose.path.graph import GAP_THRESHOLD_US, ActivityGraph, build_graph
from penstock.diagnose.path.participation import (
    Instrumentation,
    Participation,
    cut_windows,
    measure_participation,
)
from penstock.diagnose.path.sums import Channels, Sums, sum_window
from penstock.diagnose.trace.events import Activity, Floats, Times, Trace, Work, number_keys

_LABELS = tuple(kind.label for kind in Activity)

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
