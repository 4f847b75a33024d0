"""The parts of a trace on disk that are analysed one after the other, because all at once do not fit.

Carried from part to part are each worker's last activity and last event, and the messages under way.
What lies up to a window behind a part is read with it; an activity that goes on even then is closed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.diagnose.activity_graph import ActivityGraph, activity_graph
from penstock.diagnose.density import Bounds, Density, Part, Span, cut_to_fit, density_of
from penstock.diagnose.layout import laid_out_windows, open_after
from penstock.diagnose.trace import EVENT_COLUMNS, Kind, Times, Trace, from_table, whole_numbers
from penstock.diagnose.trace_files import read_trace, refused, trace_files
from penstock.errors import BadInput

_ROWS_AT_ONCE = 1 << 16

Found = TypeVar("Found")


def trace_parts(path: Path, span: Span, use: Callable[[Part], Found]) -> Iterator[Found]:
    """What `use` makes of each part; a part is forgotten before the next one is made."""
    if windows := laid_out_windows(path):
        yield from _standing_alone(windows, span, use)
        return
    if _rows(path) <= span.most_events:
        graph = activity_graph(read_trace(path))
        times = graph.trace.time_us
        first, last = (int(times[0]), int(times[-1])) if len(times) else (0, 0)
        yield use(Part(graph, *span.within(first, last), graph.repairs, is_all=True))
        return
    density = _density(path)
    cuts = cut_to_fit(density, span)
    ahead = span.window_us or cuts[0][1] - cuts[0][0]
    skipped = _skipped(density, span, cuts[0][0], ahead)
    held, batches = None, _batches(path)
    for number, (start, end) in enumerate([*skipped, *cuts]):
        held = _moved(held, start, end + ahead, batches)
        if number >= len(skipped):
            yield use(replace(held.part(start, end), is_all=len(cuts) == 1))


def _standing_alone(
    windows: Sequence[tuple[int, Path]], span: Span, use: Callable[[Part], Found]
) -> Iterator[Found]:
    """Files of one window each, whose borders hold all that crosses them: each is a part."""
    ends = [start for start, _ in windows[1:]] + [1 << 62]
    first, last = span.start_us or 0, (1 << 62) if span.end_us is None else span.end_us
    wanted = [file for (start, file), end in zip(windows, ends, strict=True) if start < last and end > first]
    if not wanted:
        raise BadInput("nothing lies in this span")
    for file in wanted:
        graph = activity_graph(read_trace(file))
        bounds = span.within(int(graph.trace.time_us[0]), int(graph.trace.time_us[-1]))
        yield use(Part(graph, *bounds, graph.repairs, is_all=len(wanted) == 1))


def _skipped(density: Density, span: Span, start: int, ahead: int) -> list[Bounds]:
    """The parts before the first one that is wanted: what goes on from there must be known."""
    if start <= density.start_us:
        return []
    return cut_to_fit(density, replace(span, window_us=ahead, start_us=None, end_us=start))


def _rows(path: Path) -> int:
    with refused(path):
        return sum(pq.ParquetFile(file).metadata.num_rows for file in trace_files(path))


def _density(path: Path) -> Density:
    """The events over time, from the column of times alone, which is read in pieces."""
    extremes = [(int(times.min()), int(times.max())) for times in _times(path) if len(times)]
    first, last = min(low for low, _ in extremes), max(high for _, high in extremes)
    return density_of(((times, None) for times in _times(path)), first, last)


def _times(path: Path) -> Iterator[Times]:
    for batch in _batches(path, ["time_us"]):
        if not batch.num_columns:
            raise BadInput(f"{path}: a trace needs the column time_us")
        yield whole_numbers(batch.column(0), "time_us")


def _batches(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    with refused(path):
        for file in trace_files(path):
            found = pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE, columns=columns)
            yield from (batch for batch in found if batch.num_rows)


@dataclass(frozen=True, slots=True)
class _Held:
    """The rows that are held at a time, as they were read and as a trace."""

    table: pa.Table
    trace: Trace
    has_last: bool

    def from_time(self, start: int) -> pa.Table:
        """The rows that parts from `start` on need."""
        return self.table.take(pa.array(needed_from(self.trace, activity_graph(self.trace), start)))

    def part(self, start: int, end: int) -> Part:
        """The graph of these rows, for the part between two times."""
        graph = activity_graph(self.trace if self.has_last else closed(self.trace))
        high = int(np.searchsorted(self.trace.time_us, end, "left"))
        if self.has_last and end >= self.trace.time_us[-1]:
            return Part(graph, start, end, graph.repairs)
        # What lies behind the part is repaired with another one. A message that has no end yet may get one;
        # those that never do are carried to the last part.
        repairs = activity_graph(self.trace.rows(0, high)).repairs
        return Part(graph, start, end, replace(repairs, sends_without_receive=0))


def _moved(held: _Held | None, start: int, until: int, batches: Iterator[pa.RecordBatch]) -> _Held:
    """Forgets what no part from `start` on needs, and reads on to the time `until`."""
    tables = [held.from_time(start)] if held else []
    latest, batch = None, None
    while latest is None or latest < until:
        batch = next(batches, None)
        if batch is None:
            break
        tables.append(pa.Table.from_batches([batch]))
        latest = int(batch.column("time_us")[-1].as_py())
    table = pa.concat_tables(tables).unify_dictionaries()
    if bool((np.diff(table.column("time_us").to_numpy()) < 0).any()):
        raise BadInput("the trace does not fit into memory at once, and its rows are not in order of time")
    trace = from_table(table)
    pa.default_memory_pool().release_unused()
    return _Held(table, trace, batch is None)


def needed_from(trace: Trace, graph: ActivityGraph, start: int) -> npt.NDArray[np.int64]:
    """The events from `start` on, and of the earlier ones those that still matter then."""
    low = int(np.searchsorted(trace.time_us, start, "left"))
    earlier = trace.rows(0, low)
    last = _last(earlier, np.arange(low))
    begun = _last(earlier, np.nonzero(earlier.kind == Kind.START)[0])
    ended = _last(earlier, np.nonzero(earlier.kind == Kind.END)[0])
    target = graph.target[:low]
    under_way = np.nonzero((earlier.kind == Kind.SEND) & ((target < 0) | (target >= low)))[0]
    last = last[last >= 0]
    # a message that is carried without its other half would look lost
    halves = np.concatenate([graph.source[last], graph.target[last]])
    halves = halves[(halves >= 0) & (halves < low)]
    kept = np.concatenate([last, begun[begun >= 0], ended[ended > begun], under_way, halves])
    return np.concatenate([np.unique(kept), np.arange(low, len(trace))])


def closed(trace: Trace) -> Trace:
    """The trace with an end, at its last instant, for every activity that goes on."""
    inside = open_after(trace.worker, trace.kind, len(trace.workers))
    last = _last(trace, np.arange(len(trace)))
    begun = _last(trace, np.nonzero(trace.kind == Kind.START)[0])
    still = begun[(last >= 0) & (inside[last] == 1)]
    columns = {
        name: np.concatenate([getattr(trace, name), getattr(trace, name)[still]]) for name in EVENT_COLUMNS
    }
    columns["time_us"][len(trace) :] = trace.time_us[-1]
    columns["kind"][len(trace) :] = Kind.END
    return Trace(**columns, workers=trace.workers, works=trace.works)


def _last(trace: Trace, events: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each worker the last of these events; -1 where it has none."""
    found = np.full(len(trace.workers), -1, dtype=np.int64)
    np.maximum.at(found, trace.worker[events], events)
    return found
