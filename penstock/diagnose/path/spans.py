"""The span of time to analyse, the density of its events, and its cuts into parts that fit in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import psutil

from penstock.diagnose.trace.events import Floats, Times
from penstock.errors import BadInput
from penstock.units.fields import format_duration

# Columns, graph, counts and shares, and the memory to build them; measured with 3 million events of a trace
# (153 bytes) and 1.1 million of an event log (165 bytes).
BYTES_PER_EVENT = 170
MOST_WINDOWS = 1_000_000
BINS = 4096
# A part is read with up to one more window, and its rows are kept beside its graph.
PART_OF_MEMORY = 0.25
# The window that a refusal names must fit even where events are a little denser than their histogram.
COMFORT = 0.8
_SHORTER = 0.8
_CONTROL_GROUP = Path("/sys/fs/cgroup")

Interval = tuple[int, int]


def find_free_memory(group: Path = _CONTROL_GROUP) -> int:
    """Return the bytes that can be used without swapping, on the machine and within a container's limit."""
    return min(int(psutil.virtual_memory().available), _find_group_memory(group))


def _find_group_memory(group: Path) -> int:
    """Return what is left of the control group's limit; without a limit, more than any machine has."""
    try:
        most, used = ((group / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        return int(most) - int(used)
    except (OSError, ValueError):
        return 1 << 62


@dataclass(frozen=True, slots=True)
class Span:
    """The time to analyse, in microseconds: in windows of `window_us`, or all in one.

    `host_cores` are the cores that the slots of a host share, for forecasts; `memory` is the number of bytes
    that may be used, by default all that are free; `price_per_core_hour` is in any currency.
    """

    window_us: int | None = None
    start_us: int | None = None
    end_us: int | None = None
    host_cores: int | None = None
    memory: int | None = None
    price_per_core_hour: float | None = None

    @property
    def most_events(self) -> int:
        """The number of events that can be analysed at once."""
        return max(1, self.bytes // BYTES_PER_EVENT)

    @property
    def bytes(self) -> int:
        """The memory that may be used."""
        return find_free_memory() if self.memory is None else self.memory

    def clip(self, first: int, last: int) -> Interval:
        """Return the part of these times that is in the span; refuse an empty one."""
        start = first if self.start_us is None else max(self.start_us, first)
        end = last if self.end_us is None else min(self.end_us, last)
        if start >= end:
            times = f"events are from {_format_moment(first)} to {_format_moment(last)}"
            raise BadInput(f"nothing lies in this span: {times}")
        if self.window_us and (end - start) // self.window_us >= MOST_WINDOWS:
            window, seconds = format_duration(self.window_us / 1e6), (end - start) / 1e6
            raise BadInput(f"--window: {window} cuts {seconds:.4g} s into more than {MOST_WINDOWS} windows")
        return start, end


def _format_moment(microseconds: int) -> str:
    try:
        return datetime.fromtimestamp(microseconds / 1e6).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        # a clock that does not count from 1970, or counts in other units
        return f"{microseconds / 1e6:g} s"


@dataclass(frozen=True, slots=True)
class Density:
    """A histogram of events over a span, in bins of equal length."""

    start_us: int
    end_us: int
    counts: Times

    @property
    def events(self) -> int:
        """The number of all events."""
        return int(self.counts.sum())

    def count_before(self, times: Floats) -> Floats:
        """Return how many events lie before each of these times, if a bin's events are spread evenly."""
        edges = np.linspace(self.start_us, max(self.end_us, self.start_us + 1), len(self.counts) + 1)
        return np.asarray(np.interp(times, edges, np.concatenate([[0], np.cumsum(self.counts)])))

    def count_between(self, start_us: int, end_us: int) -> int:
        """Return how many events lie between two times."""
        low, high = self.count_before(np.array([start_us, end_us], dtype=np.float64))
        return _round_up(high - low)

    def count_densest(self, start_us: int, end_us: int, window_us: int) -> int:
        """Return the number of events in the fullest window of this length."""
        edges = np.append(np.arange(start_us, end_us, max(1, window_us), dtype=np.float64), end_us)
        return _round_up(np.diff(self.count_before(edges)).max(initial=0.0))


def _round_up(events: float) -> int:
    """Round up, but ignore what interpolation leaves after the third decimal."""
    return math.ceil(round(float(events), 3))


def measure_density(chunks: Iterable[tuple[Times, Times | None]], start_us: int, end_us: int) -> Density:
    """Count times that come in chunks, each time as often as its weight says."""
    counts = np.zeros(BINS, dtype=np.int64)
    width = max(1, end_us - start_us)
    for times, weights in chunks:
        # integers would overflow where one wrong clock makes the span a century long
        share = (times.astype(np.float64) - start_us) / width
        place = np.clip(share * BINS, 0, BINS - 1).astype(np.int64)
        counts += np.bincount(place, weights, BINS).astype(np.int64)
    return Density(start_us, end_us, counts)


def cut_to_fit(density: Density, span: Span) -> list[Interval]:
    """Return the span uncut if it fits in memory, else cut between windows into parts that do.

    If one window alone does not fit, the refusal names the length of one that does.
    """
    start, end = span.clip(density.start_us, density.end_us)
    if density.count_between(start, end) <= span.most_events:
        return [(start, end)]
    if span.window_us is None:
        raise BadInput(_explain_refusal(density, (start, end), span, end - start, 1.0))
    most = int(span.most_events * PART_OF_MEMORY)
    if density.count_densest(start, end, span.window_us) > most:
        raise BadInput(_explain_refusal(density, (start, end), span, span.window_us, PART_OF_MEMORY))
    edges = np.append(np.arange(start, end, span.window_us, dtype=np.int64), end)
    return list(_join_windows(edges, density.count_before(edges.astype(np.float64)), most))


def _join_windows(edges: Times, held: Floats, most: int) -> Iterator[Interval]:
    """Yield neighbouring windows joined into parts of at most this many events."""
    first = 0
    while first < len(edges) - 1:
        last = max(first + 1, int(np.searchsorted(held, held[first] + most, "right")) - 1)
        yield int(edges[first]), int(edges[last])
        first = last


def _explain_refusal(density: Density, bounds: Interval, span: Span, window_us: int, part: float) -> str:
    events = density.count_densest(*bounds, window_us)
    needed = int(events * BYTES_PER_EVENT / part)
    around = "" if part == 1.0 else " with what surrounds it"
    fitting = format_duration(find_fitting_window(density, bounds, span) / 1e6)
    return (
        f"a window of {window_us / 1e6:.4g} s holds {events} events and needs {needed >> 20} MiB{around}, "
        f"but only {span.bytes >> 20} MiB are free; --window {fitting} fits"
    )


def find_fitting_window(density: Density, bounds: Interval, span: Span) -> int:
    """Return a window, in microseconds, that fits even where events are densest; two digits, easy to type."""
    start, end = bounds
    most = span.most_events * PART_OF_MEMORY
    length = (end - start) * min(1.0, most * COMFORT / max(1, density.count_between(start, end)))
    window = _round_down(length)
    while window > (end - start) / BINS and density.count_densest(start, end, window) > most:
        length *= _SHORTER
        window = _round_down(length)
    return window


def _round_down(microseconds: float) -> int:
    step = int(10 ** max(0, math.floor(math.log10(max(1.0, microseconds))) - 1))
    return max(1, int(microseconds // step) * step)
