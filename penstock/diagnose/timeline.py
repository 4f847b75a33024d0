"""The timeline of an application: busy slots of each executor, jobs in lanes, and one critical path."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from penstock.diagnose.log.application import ApplicationLog, Column, StageKey
from penstock.diagnose.path.graph import ActivityGraph
from penstock.diagnose.trace.driver_timeline import DRIVER
from penstock.diagnose.trace.events import Activity, Floats, Indices
from penstock.diagnose.whatif.capacity import Capacity, measure_executor

BINS = 160
"""Of the whole span, for the busy slots of an executor."""
MOST_JOBS = 400
"""Bars of jobs; from there on neighbours in a lane are drawn as one."""

_EXECUTOR = re.compile(r"^executor (.+) (?:slot \d+|shuffle)$")


@dataclass(frozen=True, slots=True)
class ExecutorLine:
    """An executor while it was there, and in each bin the share of its slots that tasks used."""

    executor: str
    host: str
    slots: int
    start_ms: int
    end_ms: int
    reason: str
    busy: tuple[float, ...]
    slot_seconds: float
    busy_seconds: float
    tasks: int


@dataclass(frozen=True, slots=True)
class JobBar:
    """A job, or several that follow each other, in a lane of jobs that do not overlap."""

    jobs: tuple[int, ...]
    start_ms: int
    end_ms: int
    lane: int
    failed: bool


@dataclass(frozen=True, slots=True)
class PathPiece:
    """A piece of the critical path: on the driver or an executor, for an operator, doing one thing."""

    row: str
    start_ms: float
    end_ms: float
    operator: str
    doing: str
    stage: StageKey | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ms - self.start_ms) / 1000


@dataclass(frozen=True, slots=True)
class Timeline:
    """A span as it is drawn; the path is one of many that are as long, or empty where it was not drawn."""

    start_ms: int
    end_ms: int
    executors: list[ExecutorLine]
    jobs: list[JobBar]
    path: list[PathPiece]


def build_timeline(log: ApplicationLog, path: Iterable[PathPiece], names: Mapping[StageKey, str]) -> Timeline:
    """Return the timeline of a log; the pieces of the path are told with their stages."""
    return Timeline(log.start, log.end, measure_use(log), draw_jobs(log), _find_stages(log, path, names))


def measure_use(log: ApplicationLog, bins: int = BINS) -> list[ExecutorLine]:
    """Return the executors in the order in which they came."""
    edges = np.linspace(log.start, max(log.end, log.start + 1), bins + 1)
    names = dict.fromkeys([*log.executors, *log.tasks.executors])
    found = [line for name in names if (line := _measure_executor(log, name, edges))]
    return sorted(found, key=lambda line: line.start_ms)


def _measure_executor(log: ApplicationLog, name: str, edges: Floats) -> ExecutorLine | None:
    """Return the use of one executor, or None if it was not there or has no slots."""
    changes, mine = measure_executor(log, name)
    if not changes or changes[0][0] >= log.end or (len(changes) > 1 and changes[1][0] <= log.start):
        return None
    begun, slots = changes[0]
    until = changes[1][0] if len(changes) > 1 else log.end
    launch = np.maximum(log.tasks["launch"][mine], log.start)
    finish = np.where(log.tasks["finish"][mine] >= 0, log.tasks["finish"][mine], log.end)
    busy = np.diff(_integrate(np.minimum(finish, log.end), launch, edges))
    there = np.diff(_integrate(np.array([until]), np.array([begun]), edges)) * slots
    known = log.executors.get(name)
    return ExecutorLine(
        executor=name,
        host=known.host if known else "",
        slots=slots,
        start_ms=max(begun, log.start),
        end_ms=min(until, log.end),
        reason=known.reason if known and 0 <= known.removed <= log.end else "",
        busy=tuple(np.clip(busy / np.maximum(there, 1e-9), 0.0, 1.0).round(3).tolist()),
        slot_seconds=Capacity(changes).integrate(log.start, log.end),
        busy_seconds=float(busy.sum()) / 1000,
        tasks=len(mine),
    )


def _integrate(ends: Column, starts: Column, times: Floats) -> Floats:
    """Return how much of these intervals lies before each of the times."""
    # counted from the first time: sums of milliseconds since the epoch would lose digits
    first = times[0]
    return _sum_before(starts - first, times - first) - _sum_before(ends - first, times - first)


def _sum_before(moments: Floats, times: Floats) -> Floats:
    ordered = np.sort(moments)
    sums = np.concatenate([[0.0], np.cumsum(ordered, dtype=np.float64)])
    place = np.searchsorted(ordered, times, "right")
    return np.asarray(times * place - sums[place], dtype=np.float64)


def draw_jobs(log: ApplicationLog) -> list[JobBar]:
    """Return the jobs in lanes; where they are many, neighbours in a lane are joined."""
    free: list[int] = []
    bars = []
    for job in sorted(log.jobs.values(), key=lambda one: (one.started, one.job)):
        ended = job.ended if job.ended >= 0 else log.end
        lane = next((place for place, until in enumerate(free) if until <= job.started), len(free))
        free[lane : lane + 1] = [ended]
        bars.append(JobBar((job.job,), job.started, ended, lane, bool(job.failure)))
    least = 0.0
    while len(bars) > MOST_JOBS:
        least = 2 * least or (log.end - log.start) / MOST_JOBS
        bars = _join_bars(bars, least)
    return bars


def _join_bars(bars: Sequence[JobBar], least_ms: float) -> list[JobBar]:
    """Join bars of a lane that together are no longer than this."""
    joined: list[JobBar] = []
    last: dict[tuple[int, bool], int] = {}
    for bar in bars:
        place = last.get((bar.lane, bar.failed))
        if place is not None and bar.end_ms - joined[place].start_ms <= least_ms:
            before = joined[place]
            joined[place] = replace(before, jobs=before.jobs + bar.jobs, end_ms=bar.end_ms)
            continue
        last[bar.lane, bar.failed] = len(joined)
        joined.append(bar)
    return joined


def trace_path(graph: ActivityGraph, events: Indices, start_us: int, end_us: int) -> list[PathPiece]:
    """Return the pieces of a drawn path between two times, in order; `events` has its last event first."""
    pieces: list[PathPiece] = []
    for piece in _list_edges(graph, events, start_us, end_us):
        before = pieces[-1] if pieces else None
        if before and (before.row, before.operator, before.doing) == (piece.row, piece.operator, piece.doing):
            pieces[-1] = replace(before, end_ms=piece.end_ms)
        elif piece.end_ms > piece.start_ms:
            pieces.append(piece)
    return pieces


def _list_edges(graph: ActivityGraph, events: Indices, start_us: int, end_us: int) -> Iterator[PathPiece]:
    trace, ordered = graph.trace, np.asarray(events)[::-1].tolist()
    if not ordered:
        return
    # the path may begin before its first event in the window, and end behind its last one
    following = int(graph.following[ordered[-1]])
    beyond = [following] if following >= 0 and int(trace.time_us[ordered[-1]]) < end_us else []
    for before, event in pairwise([int(graph.previous[ordered[0]]), *ordered, *beyond]):
        by_worker = int(graph.previous[event]) == before
        if not by_worker and before < 0:
            continue
        work = trace.works[graph.edge_work[event] if by_worker else trace.work[event]]
        kind = Activity(graph.edge_activity[event] if by_worker else trace.activity[event])
        begins = max(int(trace.time_us[before]) if before >= 0 else start_us, start_us)
        ends = min(int(trace.time_us[event]), end_us)
        row = _name_row(trace.workers[trace.worker[event]])
        yield PathPiece(row, begins / 1000, ends / 1000, work.operator, work.phase or kind.label)


def _name_row(worker: str) -> str:
    """Return the executor of a worker, or the worker itself where it is none."""
    found = _EXECUTOR.match(worker)
    return found[1] if found else worker


def _find_stages(
    log: ApplicationLog, path: Iterable[PathPiece], names: Mapping[StageKey, str]
) -> list[PathPiece]:
    """Tell each piece with the stage of its operator that was submitted last before it."""
    known: dict[str, list[tuple[int, StageKey]]] = {}
    for key, name in names.items():
        if key in log.stages:
            known.setdefault(name, []).append((log.stages[key].submitted, key))
    for submitted in known.values():
        submitted.sort()
    found = []
    for piece in path:
        stages = known.get(piece.operator, []) if piece.operator != DRIVER else []
        place = bisect.bisect_right(stages, (int(piece.start_ms) + 1, (1 << 60, 0))) - 1
        found.append(replace(piece, stage=stages[max(0, place)][1]) if stages else piece)
    return found
