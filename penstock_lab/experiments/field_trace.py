"""What happened in one trial of the field: executors held and batches done over time, and figures of both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson


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

    def integrate_over(self, size: float, since: float, until: float) -> float:
        """Return the executor-seconds held beyond a size."""
        return sum(max(0.0, count - size) * span for count, span in self._spans(since, until))

    def executor_seconds(self, since: float, until: float) -> float:
        """Return the executor-seconds held."""
        return sum(count * span for count, span in self._spans(since, until))

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

MOST_LAG_PERIODS = 3.0
"""Periods' worth of records that may wait at the end: one arrives, one waits, one is worked on."""


def keeps_up(trace: FieldTrace, rate: float, since: float, until: float, period: float) -> bool:
    """Tell whether batches of a span took what came in it, and did not outlast their period in the mean.

    Records count as they are read, from the end of one batch to the end of another, so that the edges of
    the span cut no batch.
    """
    batches = trace.list_batches(since, until)
    if len(batches) < 2:
        return False
    span = batches[-1].end - batches[0].end
    read = sum(batch.records for batch in batches[1:])
    mean = sum(batch.seconds for batch in batches) / len(batches)
    return read >= PROGRESS * rate * span and mean <= period


def find_lags(
    trace: FieldTrace, sent: Sequence[tuple[float, float]], since: float, until: float
) -> list[tuple[float, float]]:
    """Return (moment, records sent and not yet read) at the end of each batch of a span.

    `sent` has (moment, records sent until then), in order.
    """
    lags, read, at = [], 0.0, 0
    for batch in sorted(trace.batches, key=lambda one: one.end):
        read += batch.records
        while at < len(sent) and sent[at][0] <= batch.end:
            at += 1
        if since <= batch.end <= until:
            lags.append((batch.end, max(0.0, (sent[at - 1][1] if at else 0.0) - read)))
    return lags


def sum_behind(lags: Sequence[tuple[float, float]], most: float) -> float:
    """Return the seconds in which more than so many records were waiting, from batch to batch."""
    return sum(later - at for (at, lag), (later, _) in pairwise(lags) if lag > most)


def find_quantile(values: Sequence[float], share: float) -> float:
    """Return the least of the values that at least this share of them does not exceed; NaN without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
