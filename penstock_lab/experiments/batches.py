"""Batches, slots and load of a run, reduced to figures; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from scipy.special import stdtrit

from penstock.simulate.profiles import Bursts, Profile, Sine
from penstock_lab.workloads.records import find_arrival

STEP_SECONDS = 0.1
"""Rates change by whole seconds, so this keeps the error of the backlog's integral far below a record."""
SAMPLES_A_BATCH = 50
MOST_GROWTH = 0.05
"""A backlog that grows by less than this share of the offered rate counts as not growing."""
LEAST_BATCHES = 5
"""Fewer do not show the scatter around the line."""
CONFIDENCE = 0.95
MOST_TIMES = 8.0
"""Never ask for a run longer than this many times the present one: the next run will know better."""


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """One finished batch: when it began, how long it took, and its records.

    `records` counts rows. `first` and `records_read` are the source's count before and after the batch; with
    several sources, that of the one behind.
    """

    start: float
    seconds: float
    records: int
    records_read: int
    first: int = 0

    @property
    def end(self) -> float:
        """When it was committed."""
        return self.start + self.seconds


def read_reports(reports: Iterable[dict[str, Any]]) -> list[BatchSeen]:
    """Return the batches of progress reports that read something, oldest first, each once."""
    batches = {}
    for report in reports:
        first, read = (
            min((source[offset] or {"records": 0})["records"] for source in report["sources"])
            for offset in ("startOffset", "endOffset")
        )
        start, seconds = datetime.fromisoformat(report["timestamp"]), report["durationMs"]["triggerExecution"]
        # a trigger that found nothing to do reports the number of the batch to come
        if read > first:
            seen = BatchSeen(start.timestamp(), seconds / 1000, report["numInputRows"], read, first)
            batches[report["batchId"]] = seen
    return [batches[number] for number in sorted(batches)]


@dataclass(frozen=True, slots=True)
class SlotsSeen:
    """The slots held at a moment; they hold until the next sample."""

    at: float
    slots: int


def sum_slot_seconds(samples: Sequence[SlotsSeen], start: float, end: float) -> float:
    """Integrate the slots held over start … end."""
    closed = [*samples, SlotsSeen(max(end, samples[-1].at), samples[-1].slots)]
    return sum(
        before.slots * max(0.0, min(after.at, end) - max(before.at, start))
        for before, after in pairwise(closed)
    )


def sum_backlog(
    batches: Sequence[BatchSeen], offered: Callable[[float], float], start: float, end: float
) -> float:
    """Integrate the records offered and not yet read over start … end, in record-seconds.

    A batch reads its records when it begins, so the backlog grows until the next one begins.
    """
    times = np.arange(start, end, STEP_SECONDS) + STEP_SECONDS / 2
    begun = np.array([batch.start for batch in batches])
    read = np.array([0, *(batch.records_read for batch in batches)])
    seen = read[np.searchsorted(begun, times, side="right")]
    waiting = np.array([offered(time) for time in times]) - seen
    return float(np.maximum(waiting, 0.0).sum() * STEP_SECONDS)


def find_size_changes(samples: Sequence[SlotsSeen], together_seconds: float) -> list[SlotsSeen]:
    """Return the sizes that were reached; changes within so many seconds count as one."""
    changes: list[SlotsSeen] = []
    last_change = float("-inf")
    for before, after in pairwise(samples):
        if after.slots == before.slots:
            continue
        if after.at - last_change <= together_seconds:
            changes[-1] = after
        else:
            changes.append(after)
        last_change = after.at
    return changes


def find_slots(samples: Sequence[SlotsSeen], moment: float) -> int:
    """Return the slots held at the moment."""
    return [sample.slots for sample in samples if sample.at <= moment][-1]


def time_settled_batch(
    batches: Sequence[BatchSeen], after: float, until: float, records: float, tolerance: float = 0.15
) -> float | None:
    """Return the median time of ordinary batches that ran wholly in the span, None if there were none.

    Batches that work off a backlog are larger, and say nothing about the steady state.
    """
    ordinary = [
        batch.seconds
        for batch in batches
        if batch.start >= after and batch.end <= until and abs(batch.records - records) <= tolerance * records
    ]
    return median(ordinary) if ordinary else None


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """The outcome of a load in a span of time; a record's latency is from its offer to its commit."""

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
        """Whether the backlog does not grow, by the best guess; `judge_load` says whether it can be told."""
        return self.backlog_growth_per_second <= MOST_GROWTH * self.offered_per_second


def measure_load(
    profile: Profile, start: float, batches: Sequence[BatchSeen], since: float
) -> LoadOutcome | None:
    """Reduce the batches that began after `since` to an outcome; None if there are fewer than three."""
    seen = [batch for batch in batches if batch.start >= since]
    if len(seen) < 3:
        return None
    seconds = seen[-1].end - seen[0].start
    offered = [profile.cumulative(batch.end - start) for batch in seen]
    waiting = [sent - batch.records_read for sent, batch in zip(offered, seen, strict=True)]
    p50, p95, p99 = find_latencies(profile, start, seen, (50, 95, 99))
    growth, error = _fit_slope([batch.end for batch in seen], waiting)
    return LoadOutcome(
        offered_per_second=(offered[-1] - profile.cumulative(seen[0].start - start)) / seconds,
        records_per_second=(seen[-1].records_read - seen[0].first) / seconds,
        p50_ms=p50 * 1000,
        p95_ms=p95 * 1000,
        p99_ms=p99 * 1000,
        backlog_records=waiting[-1],
        backlog_growth_per_second=growth,
        batches=len(seen),
        seconds=seconds,
        backlog_growth_error=error,
    )


def find_latencies(
    profile: Profile, start: float, batches: Sequence[BatchSeen], percentiles: Sequence[float]
) -> list[float]:
    """Return percentiles of the latency over records: each batch counts by how many it had."""
    latencies, weights = [], []
    for batch in batches:
        numbers = np.linspace(batch.first, max(batch.first, batch.records_read - 1), SAMPLES_A_BATCH)
        latencies += [batch.end - start - find_arrival(profile, number) for number in numbers.tolist()]
        weights += [(batch.records_read - batch.first) / SAMPLES_A_BATCH] * SAMPLES_A_BATCH
    order = np.argsort(latencies)
    share = np.cumsum(np.array(weights)[order]) / sum(weights)
    places = np.minimum(np.searchsorted(share, np.array(percentiles) / 100 - 1e-12), len(order) - 1)
    return [float(latencies[order[place]]) for place in places]


def _fit_slope(times: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return the slope of the line through three points or more, by least squares, and its standard error."""
    away, waiting = np.array(times) - np.mean(times), np.array(values)
    spread = float(away @ away)
    slope = float(away @ waiting) / spread
    beside = waiting - waiting.mean() - slope * away
    return slope, float(np.sqrt(beside @ beside / (len(times) - 2) / spread))


@dataclass(frozen=True, slots=True)
class SustainedVerdict:
    """Whether the rate is sustained; None where the run cannot tell, with how long a run should be."""

    sustained: bool | None
    why: str
    longer_seconds: float | None = None


def judge_load(found: LoadOutcome, profile: Profile) -> SustainedVerdict:
    """Judge whether the offered rate is sustained, as far as the run shows it."""
    if found.batches < LEAST_BATCHES:
        return judge_few(found.batches, found.seconds)
    if found.seconds < (period := _find_period(profile)):
        why = f"{found.seconds:.0f} s are less than one period of the load, {period:g} s"
        return _ask_longer(found.seconds, why, 1.5 * period)
    most = MOST_GROWTH * found.offered_per_second
    half = found.backlog_growth_error * float(stdtrit(found.batches - 2, CONFIDENCE))
    low, high = (found.backlog_growth_per_second + side * half for side in (-1, 1))
    why = f"the backlog grows by {low:,.0f} to {high:,.0f} records/s; {most:,.0f} or less counts as no growth"
    if high <= most or low > most:
        return SustainedVerdict(bool(high <= most), why)
    # by least squares the error shrinks with the run's length to the power of 3/2
    apart = abs(found.backlog_growth_per_second - most)
    times = min((half / apart) ** (2 / 3), MOST_TIMES) if apart else MOST_TIMES
    return _ask_longer(found.seconds, why, found.seconds * times)


def judge_few(batches: int, seconds: float) -> SustainedVerdict:
    """Ask for a longer run when hardly any batch ended: five batches, and half again."""
    counted = {0: "no batch", 1: "only one batch"}.get(batches, f"only {batches} batches")
    why = f"{counted} ended in {seconds:.0f} s, and {LEAST_BATCHES} are the fewest that tell"
    return _ask_longer(seconds, why, 1.5 * LEAST_BATCHES * seconds / max(batches, 1))


def _ask_longer(seconds: float, why: str, needed: float) -> SustainedVerdict:
    """Ask for whole tens of seconds, at least half as long again as this run."""
    return SustainedVerdict(None, why, 10.0 * math.ceil(max(needed, 1.5 * seconds) / 10))


def _find_period(profile: Profile) -> float:
    """Return the period of the load: within one the backlog comes and goes."""
    match profile:
        case Sine(amplitude=amplitude, period=period) if amplitude > 0:
            return period
        case Bursts(base=base, peak=peak, every=every) if peak > base:
            return every
        case _:
            return 0.0
