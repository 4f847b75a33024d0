"""When each record of a load was offered, and what became of it: latency, throughput, backlog. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from penstock.errors import BadInput
from penstock.workloads.profiles import Profile

KNOT_EVERY = 1000
"""Arrivals are found exactly at every thousandth record, and between these where the rate changes."""
LOOKED_AT = tuple(number * 0.6180339887498949 % 1 for number in range(1, 17))
"""Places between two knots, as shares: by the golden ratio, so that no period falls on all of them."""
MOST_BESIDE = 0.5
"""Records that the profile may be off the line between two knots."""

NEVER_SECONDS = 1e10
"""What is not offered by then never is."""

SAMPLES_A_BATCH = 50
MOST_GROWTH = 0.05
"""A backlog that grows by less than this share of the offered rate counts as not growing."""

Seconds = NDArray[np.float64]
Knot = tuple[int, float]
"""A record and its arrival."""


def arrival(profile: Profile, record: float) -> float:
    """Seconds after the profile's start at which the record was offered."""
    low, high = 0.0, 1.0
    while profile.cumulative(high) < record:
        low, high = high, 2 * high
        if high > NEVER_SECONDS:
            raise BadInput(f"the rate profile never offers record {record:g}")
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if profile.cumulative(middle) < record else (low, middle)
    return high


def arrivals(profile: Profile, first: int, count: int) -> Seconds:
    """The same for records first … first+count-1; a record's arrival does not depend on the range."""
    places = range(first // KNOT_EVERY, (first + count) // KNOT_EVERY + 2)
    whole = [KNOT_EVERY * place for place in places if _offers(profile, KNOT_EVERY * place)]
    knots = _knots(profile, whole)
    if len(whole) < len(places):
        # the load ends before the next knot: what comes after the last one is found record by record
        rest = range(max(first, whole[-1] + 1), first + count)
        knots += [(record, arrival(profile, record)) for record in rest]
    records, times = [record for record, _ in knots], [at for _, at in knots]
    return np.interp(np.arange(first, first + count), records, times)


def _knots(profile: Profile, records: Sequence[int]) -> list[Knot]:
    """These records with their arrivals, and as many between them as it takes to join all by lines."""
    ends = [(record, arrival(profile, record)) for record in records]
    found = ends[:1]
    for low, high in pairwise(ends):
        found += [*_within(profile, low, high), high]
    return found


def _within(profile: Profile, low: Knot, high: Knot) -> list[Knot]:
    if high[0] - low[0] < 2 or _straight(profile, low, high):
        return []
    record = (low[0] + high[0]) // 2
    middle = (record, arrival(profile, record))
    return [*_within(profile, low, middle), middle, *_within(profile, middle, high)]


def _straight(profile: Profile, low: Knot, high: Knot) -> bool:
    """Whether records come evenly from one knot to the other."""
    count, seconds = high[0] - low[0], high[1] - low[1]
    beside = (profile.cumulative(low[1] + share * seconds) - low[0] - share * count for share in LOOKED_AT)
    return all(abs(records) <= MOST_BESIDE for records in beside)


def _offers(profile: Profile, record: float) -> bool:
    return profile.cumulative(NEVER_SECONDS) >= record


@dataclass(frozen=True, slots=True)
class Committed:
    """One batch: records first … end-1 were read when it began and are dealt with when it ends."""

    began: float
    ended: float
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What became of a load in a span of time; a record's latency is from its offer to its commit."""

    offered_per_second: float
    records_per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    backlog_records: float
    """Offered and not yet committed at the end of the last batch."""
    backlog_growth_per_second: float
    batches: int
    seconds: float
    backlog_growth_error: float = 0.0
    """Standard error of the growth, from the scatter around the line."""

    @property
    def sustained(self) -> bool:
        """Whether the backlog does not grow, by the best guess; `sustaining` says whether it can be told."""
        return self.backlog_growth_per_second <= MOST_GROWTH * self.offered_per_second


def outcome(profile: Profile, start: float, batches: Sequence[Committed], since: float) -> LoadOutcome | None:
    """Judge the batches that began after `since`; None if there are fewer than three."""
    seen = [batch for batch in batches if batch.began >= since]
    if len(seen) < 3:
        return None
    seconds = seen[-1].ended - seen[0].began
    offered = [profile.cumulative(batch.ended - start) for batch in seen]
    waiting = [sent - batch.end for sent, batch in zip(offered, seen, strict=True)]
    p50, p95, p99 = latency_percentiles(profile, start, seen, (50, 95, 99))
    growth, error = _slope([batch.ended for batch in seen], waiting)
    return LoadOutcome(
        offered_per_second=(offered[-1] - profile.cumulative(seen[0].began - start)) / seconds,
        records_per_second=(seen[-1].end - seen[0].first) / seconds,
        p50_ms=p50 * 1000,
        p95_ms=p95 * 1000,
        p99_ms=p99 * 1000,
        backlog_records=waiting[-1],
        backlog_growth_per_second=growth,
        batches=len(seen),
        seconds=seconds,
        backlog_growth_error=error,
    )


def latency_percentiles(
    profile: Profile, start: float, batches: Sequence[Committed], wanted: Sequence[float]
) -> list[float]:
    """Percentiles over records: each batch counts by how many it had."""
    latencies, weights = [], []
    for batch in batches:
        numbers = np.linspace(batch.first, max(batch.first, batch.end - 1), SAMPLES_A_BATCH)
        latencies += [batch.ended - start - arrival(profile, number) for number in numbers.tolist()]
        weights += [(batch.end - batch.first) / SAMPLES_A_BATCH] * SAMPLES_A_BATCH
    order = np.argsort(latencies)
    share = np.cumsum(np.array(weights)[order]) / sum(weights)
    places = np.minimum(np.searchsorted(share, np.array(wanted) / 100 - 1e-12), len(order) - 1)
    return [float(latencies[order[place]]) for place in places]


def _slope(times: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Of the line through three points or more, by least squares, and its standard error."""
    away, waiting = np.array(times) - np.mean(times), np.array(values)
    spread = float(away @ away)
    slope = float(away @ waiting) / spread
    beside = waiting - waiting.mean() - slope * away
    return slope, float(np.sqrt(beside @ beside / (len(times) - 2) / spread))
