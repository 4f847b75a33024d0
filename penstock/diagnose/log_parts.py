"""The parts of an application's log that are analysed one after the other, because all at once do not fit."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from penstock.diagnose.activity_graph import activity_graph
from penstock.diagnose.application_log import Column
from penstock.diagnose.density import Density, Part, Span, cut_to_fit, density_of
from penstock.diagnose.log_trace import SERVERS_PER_FETCH, LogTimelines
from penstock.diagnose.slot_timeline import FETCH

# Four of the task's messages, its launch and result on the driver's timeline, and a question and an answer,
# each with two ends, for every server that it fetches from.
_EVENTS_OF_TASK, _EVENTS_OF_FETCH = 8, 4 * SERVERS_PER_FETCH

Found = TypeVar("Found")


def log_parts(lines: LogTimelines, span: Span, use: Callable[[Part], Found]) -> Iterator[Found]:
    """What `use` makes of each part; a part is forgotten before the next one is made."""
    cuts = cut_to_fit(log_density(lines), span)
    for start, end in cuts:
        rows, doing = _touching(lines, start, end)
        # The log's timelines are complete: no gap in them is a lack of instrumentation to be bridged.
        graph = activity_graph(lines.trace(rows, doing), gap_threshold_us=0)
        found = use(Part(graph, start, end, graph.repairs, len(cuts) == 1))
        del graph
        yield found


def log_density(lines: LogTimelines) -> Density:
    """How the events of the log's trace are spread over time; told from its tasks, none is made for it."""
    driver, bounds = lines.driver, lines.slots.bounds
    phases = (np.diff(bounds, axis=1) > 0).sum(axis=1)
    fetches = bounds[:, FETCH + 1] > bounds[:, FETCH] + 3
    events = _EVENTS_OF_TASK + 2 * phases + np.where(fetches, _EVENTS_OF_FETCH, 0)
    first = driver.activities[0].start_us if driver.activities else driver.end_us
    starts = np.array([doing.start_us for doing in driver.activities], dtype=np.int64)
    times, weights = np.concatenate([driver.launch_us, starts]), np.append(events, np.full(len(starts), 2))
    return density_of([(times, weights)], first, driver.end_us)


def _touching(lines: LogTimelines, start: int, end: int) -> tuple[Column, slice]:
    """Tasks and activities of the driver in this span, and on every worker one before and one behind it."""
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
