"""Analyse a log or a trace part by part where all of it does not fit in memory at once.

Each worker's last activity and last event, and the messages under way, are carried from part to part of a
trace. A part is read with up to one window after it; an activity that lasts longer is closed there.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.diagnose.log.application import Column
from penstock.diagnose.path.graph import ActivityGraph, Repairs, build_graph
from penstock.diagnose.path.spans import Density, Interval, Span, cut_to_fit, measure_density
from penstock.diagnose.trace.events import (
    EVENT_COLUMNS,
    Codes,
    Indices,
    Kind,
    Times,
    Trace,
    find_trace_files,
    from_table,
    read_trace,
    read_whole_numbers,
    refuse_unreadable,
)
from penstock.diagnose.trace.from_log import SERVERS_PER_FETCH, LogTimelines
from penstock.diagnose.trace.slot_timeline import FETCH
from penstock.errors import BadInput

_ROWS_AT_ONCE = 1 << 16
_START, _END = int(Kind.START), int(Kind.END)
# A task has four ends of messages, and a launch and a result on the driver's timeline. For every server that
# it fetches from, it has a request and an answer, each with two ends.
_EVENTS_OF_TASK, _EVENTS_OF_FETCH = 8, 4 * SERVERS_PER_FETCH

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of time, or all of it, with a graph that reaches a little beyond both of its ends."""

    graph: ActivityGraph
    start_us: int
    end_us: int
    repairs: Repairs
    is_all: bool = False


def analyse_trace_parts(path: Path, span: Span, use: Callable[[Part], Found]) -> Iterator[Found]:
    """Yield what `use` makes of each part of a trace; a part is freed before the next one is built."""
    if _count_rows(path) <= span.most_events:
        graph = build_graph(read_trace(path))
        times = graph.trace.time_us
        first, last = (int(times[0]), int(times[-1])) if len(times) else (0, 0)
        yield use(Part(graph, *span.clip(first, last), graph.repairs, is_all=True))
        return
    density = _measure_trace_density(path)
    cuts = cut_to_fit(density, span)
    ahead = span.window_us or cuts[0][1] - cuts[0][0]
    skipped = _cut_before(density, span, cuts[0][0], ahead)
    held, batches = None, _read_batches(path)
    for number, (start, end) in enumerate([*skipped, *cuts]):
        held = _move_on(held, start, end + ahead, batches)
        if number >= len(skipped):
            yield use(replace(held.make_part(start, end), is_all=len(cuts) == 1))


def _cut_before(density: Density, span: Span, start: int, ahead: int) -> list[Interval]:
    """Return the parts before the first one that is wanted: what lasts into it must be known."""
    if start <= density.start_us:
        return []
    return cut_to_fit(density, replace(span, window_us=ahead, start_us=None, end_us=start))


def _count_rows(path: Path) -> int:
    with refuse_unreadable(path):
        return sum(pq.ParquetFile(file).metadata.num_rows for file in find_trace_files(path))


def _measure_trace_density(path: Path) -> Density:
    """Count the events over time from the column of times alone, read in pieces."""
    extremes = [(int(times.min()), int(times.max())) for times in _read_times(path) if len(times)]
    first, last = min(low for low, _ in extremes), max(high for _, high in extremes)
    return measure_density(((times, None) for times in _read_times(path)), first, last)


def _read_times(path: Path) -> Iterator[Times]:
    for batch in _read_batches(path, ["time_us"]):
        if not batch.num_columns:
            raise BadInput(f"{path}: a trace needs the column time_us")
        yield read_whole_numbers(batch.column(0), "time_us")


def _read_batches(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    with refuse_unreadable(path):
        for file in find_trace_files(path):
            found = pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE, columns=columns)
            yield from (batch for batch in found if batch.num_rows)


@dataclass(frozen=True, slots=True)
class _Held:
    """The rows that are in memory, as they were read and as a trace."""

    table: pa.Table
    trace: Trace
    has_last: bool

    def keep_from(self, start: int) -> pa.Table:
        """Return the rows that parts from `start` on need."""
        return self.table.take(pa.array(find_needed_events(self.trace, build_graph(self.trace), start)))

    def make_part(self, start: int, end: int) -> Part:
        """Return the part between two times."""
        graph = build_graph(self.trace if self.has_last else close_activities(self.trace))
        high = int(np.searchsorted(self.trace.time_us, end, "left"))
        if self.has_last and end >= self.trace.time_us[-1]:
            return Part(graph, start, end, graph.repairs)
        # Rows after this part are repaired with the next. A message without an end may still get one; those
        # that never do are carried to the last part.
        repairs = build_graph(self.trace.rows(0, high)).repairs
        return Part(graph, start, end, replace(repairs, sends_without_receive=0))


def _move_on(held: _Held | None, start: int, until: int, batches: Iterator[pa.RecordBatch]) -> _Held:
    """Drop the rows that no part from `start` on needs, and read on to the time `until`."""
    tables = [held.keep_from(start)] if held else []
    latest, batch = None, None
    while latest is None or latest < until:
        batch = next(batches, None)
        if batch is None:
            break
        tables.append(pa.Table.from_batches([batch]))
        latest = int(batch.column("time_us")[-1].as_py())
    table = pa.concat_tables(tables).unify_dictionaries()
    if bool((np.diff(table.column("time_us").to_numpy()) < 0).any()):
        raise BadInput("the trace does not fit in memory at once, and its rows are not in order of time")
    trace = from_table(table)
    pa.default_memory_pool().release_unused()
    return _Held(table, trace, batch is None)


def find_needed_events(trace: Trace, graph: ActivityGraph, start: int) -> npt.NDArray[np.int64]:
    """Return the events from `start` on, and the earlier ones that still matter then."""
    low = int(np.searchsorted(trace.time_us, start, "left"))
    earlier = trace.rows(0, low)
    last = _find_last(earlier, np.arange(low))
    begun = _find_last(earlier, np.nonzero(earlier.kind == Kind.START)[0])
    ended = _find_last(earlier, np.nonzero(earlier.kind == Kind.END)[0])
    target = graph.target[:low]
    under_way = np.nonzero((earlier.kind == Kind.SEND) & ((target < 0) | (target >= low)))[0]
    last = last[last >= 0]
    # a message without its other half would count as lost
    halves = np.concatenate([graph.source[last], graph.target[last]])
    halves = halves[(halves >= 0) & (halves < low)]
    kept = np.concatenate([last, begun[begun >= 0], ended[ended > begun], under_way, halves])
    return np.concatenate([np.unique(kept), np.arange(low, len(trace))])


def close_activities(trace: Trace) -> Trace:
    """Return the trace with an end, at its last instant, for every activity that has none."""
    inside = _mark_open(trace.worker, trace.kind, len(trace.workers))
    last = _find_last(trace, np.arange(len(trace)))
    begun = _find_last(trace, np.nonzero(trace.kind == Kind.START)[0])
    still = begun[(last >= 0) & (inside[last] == 1)]
    columns = {
        name: np.concatenate([getattr(trace, name), getattr(trace, name)[still]]) for name in EVENT_COLUMNS
    }
    columns["time_us"][len(trace) :] = trace.time_us[-1]
    columns["kind"][len(trace) :] = Kind.END
    return Trace(**columns, workers=trace.workers, works=trace.works)


@numba.njit(cache=True)
def _mark_open(worker: Indices, kind: Codes, workers: int) -> Codes:
    """Return for each event whether its worker is inside an activity after it."""
    inside = np.zeros(len(worker), dtype=np.uint8)
    now = np.zeros(workers, dtype=np.uint8)
    for i in range(len(worker)):
        if kind[i] <= _END:
            now[worker[i]] = kind[i] == _START
        inside[i] = now[worker[i]]
    return inside


def _find_last(trace: Trace, events: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return for each worker the last of these events, -1 where it has none."""
    found = np.full(len(trace.workers), -1, dtype=np.int64)
    np.maximum.at(found, trace.worker[events], events)
    return found


def analyse_log_parts(lines: LogTimelines, span: Span, use: Callable[[Part], Found]) -> Iterator[Found]:
    """Yield what `use` makes of each part of a log; a part is freed before the next one is built."""
    cuts = cut_to_fit(measure_log_density(lines), span)
    for start, end in cuts:
        rows, doing = _find_touching(lines, start, end)
        # timelines of a log are complete: a gap in them is not missing instrumentation
        graph = build_graph(lines.build_trace(rows, doing), gap_threshold_us=0)
        found = use(Part(graph, start, end, graph.repairs, len(cuts) == 1))
        del graph
        yield found


def measure_log_density(lines: LogTimelines) -> Density:
    """Count the events of the log's trace over time, from its tasks, before any trace is built."""
    driver, bounds = lines.driver, lines.slots.bounds
    phases = (np.diff(bounds, axis=1) > 0).sum(axis=1)
    fetches = bounds[:, FETCH + 1] > bounds[:, FETCH] + 3
    events = _EVENTS_OF_TASK + 2 * phases + np.where(fetches, _EVENTS_OF_FETCH, 0)
    first = driver.activities[0].start_us if driver.activities else driver.end_us
    starts = np.array([doing.start_us for doing in driver.activities], dtype=np.int64)
    times, weights = np.concatenate([driver.launch_us, starts]), np.append(events, np.full(len(starts), 2))
    return measure_density([(times, weights)], first, driver.end_us)


def _find_touching(lines: LogTimelines, start: int, end: int) -> tuple[Column, slice]:
    """Return tasks and driver activities in this span, and on every worker one before and one after it."""
    driver, slots = lines.driver, lines.slots
    order = np.argsort(slots.begin_us, kind="stable")
    done = np.where(driver.finish_us >= 0, driver.finish_us, driver.end_us + 1)[order]
    before, behind = order[done < start], order[driver.launch_us[order] > end]
    last, first = (np.full(len(slots.slots), -1, dtype=np.int64) for _ in range(2))
    last[slots.slot[before]] = before
    first[slots.slot[behind[::-1]]] = behind[::-1]
    inside = order[(done >= start) & (driver.launch_us[order] <= end)]
    rows = np.sort(np.concatenate([last[last >= 0], inside, first[first >= 0]]))
    begins = [doing.start_us for doing in driver.activities]
    low, high = bisect.bisect_right(begins, start), bisect.bisect_left(begins, end)
    return rows, slice(max(0, low - 2), high + 1)
