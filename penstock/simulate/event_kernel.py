"""Compiled service of single records, first come, first served, by the instances of one operator."""

from __future__ import annotations

import math

import numba
import numpy as np

from penstock.dataflow.metrics import Floats, Integers


@numba.njit(cache=True)
def serve(
    arrivals: Floats, factors: Floats, service: float, free: Floats, until: float, done: Floats, work: Floats
) -> int:
    """Give each record, in order, to the instance that is free first; stop at one that begins later.

    `factors` are service times in multiples of the mean; `free` says when each instance is free and is
    brought up to date, as are the records `done` and the seconds of `work` of each. What begins before
    `until` is served to its end; `arrivals` become the times at which records leave. Returns how many.
    """
    for number in range(len(arrivals)):
        first = 0
        for instance in range(1, len(free)):
            if free[instance] < free[first]:
                first = instance
        start = max(arrivals[number], free[first])
        if start >= until:
            return number
        seconds = factors[number] * service
        free[first] = start + seconds
        done[first] += 1.0
        work[first] += seconds
        arrivals[number] = free[first]
    return len(arrivals)


BINS = 2400
LEAST_SECONDS = 1e-6
PER_DECADE = 200
"""Bins grow by 1.16 %, from a microsecond to eleven days: a percentile is that exact."""


@numba.njit(cache=True)
def count_latencies(ages: Floats, counts: Integers) -> None:
    """Add latencies to a histogram whose bins are even in the logarithm."""
    for age in ages:
        place = int(math.log10(max(age, LEAST_SECONDS) / LEAST_SECONDS) * PER_DECADE)
        counts[min(place, len(counts) - 1)] += 1


def percentiles(counts: Integers, wanted: tuple[float, ...]) -> tuple[float, ...]:
    """The latencies that so many per cent of the counted records did not exceed; zero if there are none."""
    total = int(counts.sum())
    if total == 0:
        return (0.0,) * len(wanted)
    reached = np.cumsum(counts)
    places = np.searchsorted(reached, np.array(wanted) / 100 * total, side="left")
    # the middle of the bin, on its logarithmic scale
    return tuple((LEAST_SECONDS * 10 ** ((places + 0.5) / PER_DECADE)).tolist())
