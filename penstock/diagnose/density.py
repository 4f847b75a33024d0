"""How events are spread over time, and into which parts a span is cut so that each fits into memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from penstock.diagnose.activity_graph import ActivityGraph, Repairs
from penstock.diagnose.memory import BYTES_PER_EVENT, available_bytes
from penstock.diagnose.trace import Floats, Times
from penstock.durations import format_duration
from penstock.errors import BadInput

PARTS = 4096
MOST_WINDOWS = 1_000_000
# What lies behind a part is read with it, up to one more window, and its rows are kept beside the graph.
PART_OF_MEMORY = 0.25
# The length that is named must fit even where events lie a little denser than their histogram tells.
COMFORT = 0.8
_SHORTER = 0.8

Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Span:
    """Which part to look at, in microseconds: cut into windows of `window_us`, or all in one.

    `host_cores` are the cores of a host that slots share, where forecasts are to know them;
    `memory` is how many bytes may be used, by default what is free.
    """

    window_us: int | None = None
    start_us: int | None = None
    end_us: int | None = None
    host_cores: int | None = None
    memory: int | None = None

    @property
    def most_events(self) -> int:
        """As many events as can be analysed at once."""
        return max(1, self.bytes // BYTES_PER_EVENT)

    @property
    def bytes(self) -> int:
        """How much memory there is for them."""
        return available_bytes() if self.memory is None else self.memory

    def within(self, first: int, last: int) -> Bounds:
        """The part of these times that is asked for."""
        start = first if self.start_us is None else max(self.start_us, first)
        end = last if self.end_us is None else min(self.end_us, last)
        if start >= end:
            raise BadInput(f"nothing lies in this span: events are from {_moment(first)} to {_moment(last)}")
        if self.window_us and (end - start) // self.window_us >= MOST_WINDOWS:
            window, seconds = format_duration(self.window_us / 1e6), (end - start) / 1e6
            raise BadInput(f"--window: {window} cuts {seconds:.4g} s into more than {MOST_WINDOWS} windows")
        return start, end


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of time, maybe all there is, with a graph that reaches a little over both of its ends."""

    graph: ActivityGraph
    start_us: int
    end_us: int
    repairs: Repairs
    is_all: bool = False


@dataclass(frozen=True, slots=True)
class Density:
    """The events of a span, counted in equal parts of its time."""

    start_us: int
    end_us: int
    counts: Times

    @property
    def events(self) -> int:
        """How many events there are in all."""
        return int(self.counts.sum())

    def before(self, times: Floats) -> Floats:
        """How many events lie before each of these times, taken as spread evenly within a part."""
        edges = np.linspace(self.start_us, max(self.end_us, self.start_us + 1), len(self.counts) + 1)
        return np.asarray(np.interp(times, edges, np.concatenate([[0], np.cumsum(self.counts)])))

    def between(self, start_us: int, end_us: int) -> int:
        """How many events lie between two times."""
        low, high = self.before(np.array([start_us, end_us], dtype=np.float64))
        return _whole(high - low)

    def densest(self, start_us: int, end_us: int, window_us: int) -> int:
        """The events of the fullest window of this length."""
        edges = np.append(np.arange(start_us, end_us, max(1, window_us), dtype=np.float64), end_us)
        return _whole(np.diff(self.before(edges)).max(initial=0.0))


def _moment(microseconds: int) -> str:
    try:
        return datetime.fromtimestamp(microseconds / 1e6).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        # a clock that does not count from 1970, or in other units
        return f"{microseconds / 1e6:g} s"


def _whole(events: float) -> int:
    """Rounded up, but not for what interpolation leaves behind the point."""
    return math.ceil(round(float(events), 3))


def density_of(chunks: Iterable[tuple[Times, Times | None]], start_us: int, end_us: int) -> Density:
    """Counts times that come in chunks, each time as often as its weight says."""
    counts = np.zeros(PARTS, dtype=np.int64)
    width = max(1, end_us - start_us)
    for times, weights in chunks:
        # whole numbers would overflow where one wrong clock makes the span a century long
        share = (times.astype(np.float64) - start_us) / width
        place = np.clip(share * PARTS, 0, PARTS - 1).astype(np.int64)
        counts += np.bincount(place, weights, PARTS).astype(np.int64)
    return Density(start_us, end_us, counts)


def cut_to_fit(density: Density, span: Span) -> list[Bounds]:
    """The span as it is where it fits, else cut between windows into parts that do.

    Where even one window does not fit, the refusal names the length of one that does.
    """
    start, end = span.within(density.start_us, density.end_us)
    if density.between(start, end) <= span.most_events:
        return [(start, end)]
    if span.window_us is None:
        raise BadInput(_refusal(density, (start, end), span, end - start, 1.0))
    most = int(span.most_events * PART_OF_MEMORY)
    if density.densest(start, end, span.window_us) > most:
        raise BadInput(_refusal(density, (start, end), span, span.window_us, PART_OF_MEMORY))
    edges = np.append(np.arange(start, end, span.window_us, dtype=np.int64), end)
    return list(_joined(edges, density.before(edges.astype(np.float64)), most))


def _joined(edges: Times, held: Floats, most: int) -> Iterator[Bounds]:
    """Neighbouring windows together, as many as have so many events."""
    first = 0
    while first < len(edges) - 1:
        last = max(first + 1, int(np.searchsorted(held, held[first] + most, "right")) - 1)
        yield int(edges[first]), int(edges[last])
        first = last


def _refusal(density: Density, bounds: Bounds, span: Span, window_us: int, part: float) -> str:
    events = density.densest(*bounds, window_us)
    needed = int(events * BYTES_PER_EVENT / part)
    around = "" if part == 1.0 else " with what surrounds it"
    fitting = format_duration(fitting_window(density, bounds, span) / 1e6)
    return (
        f"a window of {window_us / 1e6:.4g} s holds {events} events and needs {needed >> 20} MiB{around}, "
        f"but only {span.bytes >> 20} MiB are free; --window {fitting} fits"
    )


def fitting_window(density: Density, bounds: Bounds, span: Span) -> int:
    """A window, in microseconds, whose fullest instance fits; two digits, so that people can type it."""
    start, end = bounds
    most = span.most_events * PART_OF_MEMORY
    length = (end - start) * min(1.0, most * COMFORT / max(1, density.between(start, end)))
    window = _rounded_down(length)
    while window > (end - start) / PARTS and density.densest(start, end, window) > most:
        length *= _SHORTER
        window = _rounded_down(length)
    return window


def _rounded_down(microseconds: float) -> int:
    step = int(10 ** max(0, math.floor(math.log10(max(1.0, microseconds))) - 1))
    return max(1, int(microseconds // step) * step)
