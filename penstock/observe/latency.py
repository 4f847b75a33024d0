"""How old records were when their batch was committed: waiting in the source plus processing (pure).

Two things tell when a record came. A source's offsets, sampled at every trigger, tell how many had been
offered by when, so the record of any number arrived between two samples. And where the query has a watermark,
Spark reports the event times of a batch, which include what happened before the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from penstock.observe.progress import BatchProgress
from penstock.observe.sources.offered import OfferedSample, since_reset

LONGEST_UPSTREAM = 60.0
"""Seconds from an event to its arrival that count as latency; older events are history, read again."""
OLDEST_EVENT = 3600.0
"""Seconds of latency that event times alone are believed."""
CLOCKS_APART = 1.0
"""Seconds by which clocks may disagree: an event cannot come after its arrival."""


class MeasuredBy(Enum):
    """The evidence that a latency rests on."""

    EVENT_TIME = "event times"
    ARRIVALS = "arrivals at the source"
    ESTIMATE = "estimate"


LEAST_RECORDS = 1e-3
"""A smaller part of a record comes from rounding."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When the records that one batch read from one source had come there; moments in seconds."""

    mean: float
    oldest: float
    records: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from arrival, or from the event, to the commit: of the mean and of the oldest record."""

    mean: float
    oldest: float
    records: float
    by: MeasuredBy


def arrivals_between(samples: Sequence[OfferedSample], first: float, last: float) -> Arrivals | None:
    """Return the arrivals of records number `first` to `last`, evenly spread between any two samples.

    Records that came before the first sample count as having come with it, so that a latency is at least
    what is said; with that sample alone nothing is known of them.
    """
    samples = since_reset(samples)
    if len(samples) < 2 or not last - first > LEAST_RECORDS:
        return None
    begin, end = samples[0], samples[-1]
    # (records, the moment of the middle one) of every span that the batch reaches into
    parts = [(max(0.0, min(last, begin.offered) - first), begin.at), (max(0.0, last - end.offered), end.at)]
    parts += [_overlap(earlier, later, first, last) for earlier, later in pairwise(samples)]
    mean = sum(records * moment for records, moment in parts) / sum(records for records, _ in parts)
    return Arrivals(mean, _arrival(samples, first), last - first)


def _overlap(earlier: OfferedSample, later: OfferedSample, first: float, last: float) -> tuple[float, float]:
    start, end = max(first, earlier.offered), min(last, later.offered)
    if not end > start:
        return 0.0, 0.0
    middle = ((start + end) / 2 - earlier.offered) / (later.offered - earlier.offered)
    return end - start, earlier.at + middle * (later.at - earlier.at)


def _arrival(samples: Sequence[OfferedSample], number: float) -> float:
    """Return when the first record after this number came, by the samples around it."""
    if number < samples[0].offered:
        return samples[0].at
    for earlier, later in pairwise(samples):
        if later.offered > number:
            share = (number - earlier.offered) / (later.offered - earlier.offered)
            return earlier.at + share * (later.at - earlier.at)
    return samples[-1].at


def measure_latency(progress: BatchProgress, arrivals: Iterable[Arrivals]) -> Latency | None:
    """Measure the latency of one batch; None where it read nothing, or nothing is known of its records."""
    if progress.input_records <= 0:
        return None
    arrived = _by_arrivals(progress, list(arrivals))
    events = _by_events(progress)
    if events is None or arrived is None:
        return events if events is not None and -CLOCKS_APART <= events.mean <= OLDEST_EVENT else arrived
    upstream = events.mean - arrived.mean
    return events if -CLOCKS_APART <= upstream <= LONGEST_UPSTREAM else arrived


def _by_arrivals(progress: BatchProgress, arrivals: Sequence[Arrivals]) -> Latency | None:
    records = sum(source.records for source in arrivals)
    if records <= 0:
        return None
    mean = sum(source.mean * source.records for source in arrivals) / records
    oldest = min(source.oldest for source in arrivals)
    return Latency(progress.end - mean, progress.end - oldest, progress.input_records, MeasuredBy.ARRIVALS)


def _by_events(progress: BatchProgress) -> Latency | None:
    events = progress.event_times
    if events is None:
        return None
    mean, oldest = progress.end - events.mean, progress.end - events.oldest
    return Latency(mean, oldest, progress.input_records, MeasuredBy.EVENT_TIME)


def over_batches(latencies: Sequence[Latency]) -> Latency | None:
    """Return the latency of all records of some batches: each counts as often as it has records."""
    records = sum(latency.records for latency in latencies)
    if records <= 0:
        return None
    mean = sum(latency.mean * latency.records for latency in latencies) / records
    return Latency(mean, max(latency.oldest for latency in latencies), records, latencies[-1].by)
