"""The course of one trial of the field: executors held and batches done over time, and figures of both."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from scipy.stats import theilslopes

from penstock.simulate.profiles import Profile, records_offered
from penstock_lab.workloads.records import find_arrival


@dataclass(frozen=True, slots=True)
class DoneBatch:
    """One batch of one query, by its progress report."""

    query: str
    number: int
    start: float
    seconds: float
    records: float

    @property
    def end(self) -> float:
        """When its trigger was done."""
        return self.start + self.seconds


@dataclass(frozen=True, slots=True)
class FieldTrace:
    """Samples of the executors held, and the batches that had work, both in the order of time."""

    held: tuple[tuple[float, int], ...]
    batches: tuple[DoneBatch, ...]

    def held_at(self, moment: float) -> int:
        """Return how many executors there were; 0 before the first sample."""
        return next((count for at, count in reversed(self.held) if at <= moment), 0)

    def list_batches(self, since: float, until: float) -> list[DoneBatch]:
        """Return the batches that began and ended within a span."""
        return [batch for batch in self.batches if since <= batch.start and batch.end <= until]

    def sum_sizes(self, since: float, until: float) -> dict[int, float]:
        """Return the seconds for which each size was held within a span."""
        sums: dict[int, float] = {}
        for count, span in self._spans(since, until):
            sums[count] = sums.get(count, 0.0) + span
        return sums

    def unchanged_since(self, moment: float) -> float:
        """Return since when the size held at a moment has been held; the moment itself if none was seen."""
        before = [(at, count) for at, count in self.held if at <= moment]
        since = before[-1][0] if before else moment
        for at, count in reversed(before):
            if count != before[-1][1]:
                break
            since = at
        return since

    def released_after(self, moment: float, size: int) -> float | None:
        """Return seconds after a moment until no more than so many were held for good; None if never."""
        later = [(at, count) for at, count in self.held if at >= moment]
        above = [at for at, count in later if count > size]
        if later and later[-1][1] > size:
            return None
        return max(above) - moment if above else 0.0

    def _spans(self, since: float, until: float) -> Iterable[tuple[int, float]]:
        ends = [*self.held, (until, 0)]
        for (at, count), (then, _) in pairwise(ends):
            span = min(then, until) - max(at, since)
            if span > 0:
                yield count, span


def read_notes(path: Path) -> FieldTrace:
    """Read what the driver of a trial has noted; a line cut off at its end is left out."""
    held: list[tuple[float, int]] = []
    batches: list[DoneBatch] = []
    for line in path.read_bytes().splitlines():
        try:
            note: dict[str, Any] = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if "executors" in note:
            held.append((note["at"], int(note["executors"])))
        if "batch" in note and note["batch"]["executed"]:
            batches.append(_read_batch(note["batch"]))
    return FieldTrace(tuple(held), tuple(sorted(batches, key=lambda batch: batch.start)))


def _read_batch(note: dict[str, Any]) -> DoneBatch:
    start = datetime.fromisoformat(note["timestamp"]).timestamp()
    return DoneBatch(note["query"], note["number"], start, note["seconds"], note["records"])


PROGRESS = 0.95
"""The share of what came in a span that a size which keeps up has read."""


def keeps_up(
    trace: FieldTrace, rate: float, since: float, until: float, find_period: Callable[[str], float]
) -> bool:
    """Tell whether every query took what came in a span, in batches that last no longer than its period.

    All queries read the same input. Records count as they are read, from the end of one batch to the end of
    another, so that the edges of the span cut no batch.
    """
    queries = {batch.query for batch in trace.batches}
    batches = trace.list_batches(since, until)
    return bool(queries) and all(
        _reads_all([one for one in batches if one.query == query], rate, find_period(query))
        for query in queries
    )


def _reads_all(batches: Sequence[DoneBatch], rate: float, period: float) -> bool:
    if len(batches) < 2:
        return False
    span = batches[-1].end - batches[0].end
    read = sum(batch.records for batch in batches[1:])
    mean = sum(batch.seconds for batch in batches) / len(batches)
    return read >= PROGRESS * rate * span and mean <= period


def find_latencies(trace: FieldTrace, offered: Profile, fed_from: float, seconds: float) -> list[float]:
    """Return at each second of a feed the age of the oldest record that is not in a finished batch.

    A record is as old as the time since the profile offered it; 0 where all that was offered is done. Where
    several queries read the same input the slowest counts. The k-th record is offered once the integral of
    the rate reaches k, and batches read records in the order in which they were offered.
    """
    queries = {one.query for one in trace.batches} or {""}
    ends = [_sum_records(trace.batches, query) for query in queries]
    return [
        max(_find_age(offered, second, done, fed_from) for done in ends)
        for second in map(float, range(1, int(seconds) + 1))
    ]


def _sum_records(batches: Iterable[DoneBatch], query: str) -> list[tuple[float, float]]:
    """Return (end, records done until then) of a query's batches, in the order of their ends."""
    mine = sorted((one.end, one.records) for one in batches if one.query == query)
    sums = accumulate(records for _, records in mine)
    return [(end, total) for (end, _), total in zip(mine, sums, strict=True)]


def _find_age(offered: Profile, second: float, done: Sequence[tuple[float, float]], fed_from: float) -> float:
    number = bisect_right(done, fed_from + second, key=lambda one: one[0])
    read = done[number - 1][1] if number else 0.0
    if records_offered(offered, second) <= read:
        return 0.0
    return max(0.0, second - find_arrival(offered, read + 1))


LEAST_BATCHES, LEAST_SPREAD = 4, 1.2
"""Batches that a line is laid through, and the least ratio of the largest to the smallest of them."""


def fit_line(batches: Sequence[DoneBatch]) -> tuple[float, float] | None:
    """Fit seconds of a batch without records, and for each record; None if sizes hardly differ.

    The line is that of Theil and Sen, the median of the slopes between all pairs: a few slow batches do not
    move it.
    """
    sizes = [batch.records for batch in batches]
    if len(sizes) < LEAST_BATCHES or max(sizes) < LEAST_SPREAD * min(sizes):
        return None
    slope, intercept = theilslopes([batch.seconds for batch in batches], np.array(sizes))[:2]
    return float(intercept), float(slope)


def find_quantile(values: Sequence[float], share: float) -> float:
    """Return the least of the values that at least this share of them does not exceed; NaN without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
