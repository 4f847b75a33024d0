"""Reductions over one application's sliding window, compiled; a value not measured makes them NaN."""

from __future__ import annotations

import math

import numba
import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.decide.sage_settings import MEBIBYTE


@numba.njit(cache=True)
def first_after(at: Floats, moment: float) -> int:
    """The place of the first sample that ended after a moment; times rise, and missing ones are -inf."""
    for place in range(len(at)):
        if at[place] > moment:
            return place
    return len(at)


@numba.njit(cache=True)
def least(samples: Floats, column: int) -> float:
    """The smallest value of a column."""
    found = np.inf
    for place in range(len(samples)):
        value = np.float64(samples[place, column])
        if math.isnan(value):
            return np.nan
        found = min(found, value)
    return found


@numba.njit(cache=True)
def most(samples: Floats, column: int) -> float:
    """The largest value of a column."""
    found = -np.inf
    for place in range(len(samples)):
        value = np.float64(samples[place, column])
        if math.isnan(value):
            return np.nan
        found = max(found, value)
    return found


@numba.njit(cache=True)
def lasting(samples: Floats, column: int, count: int) -> float:
    """The largest value of a column that so many samples in a row did not fall below."""
    found = -np.inf
    width = min(count, len(samples))
    for place in range(len(samples) - width + 1):
        lowest = least(samples[place : place + width], column)
        if math.isnan(lowest):
            return np.nan
        found = max(found, lowest)
    return found


@numba.njit(cache=True)
def total(samples: Floats, column: int) -> float:
    """The sum of a column, from the oldest to the newest."""
    found = 0.0
    for place in range(len(samples)):
        found += np.float64(samples[place, column])
    return found


@numba.njit(cache=True)
def came_up(samples: Floats, column: int) -> bool:
    """Whether a column was above zero in any sample; one in which it was not measured hides no other."""
    return bool(np.any(samples[:, column] > 0))


@numba.njit(cache=True)
def measured(samples: Floats, column: int) -> Floats:
    """The samples in which a column was measured."""
    return samples[~np.isnan(samples[:, column])]


@numba.njit(cache=True)
def growth(samples: Floats, column: int) -> float:
    """How much a column grew; NaN unless every sample has more than the one before."""
    for place in range(1, len(samples)):
        if not np.float64(samples[place, column]) > np.float64(samples[place - 1, column]):
            return np.nan
    return np.float64(samples[len(samples) - 1, column]) - np.float64(samples[0, column])


@numba.njit(cache=True)
def ceiling(value: float) -> float:
    """Rounded up; NaN stays NaN."""
    return math.nan if math.isnan(value) else float(np.ceil(value))


@numba.njit(cache=True)
def whole_mebibytes(size: float) -> float:
    """Rounded up to what Spark's memory settings can say."""
    return ceiling(size / MEBIBYTE) * MEBIBYTE
