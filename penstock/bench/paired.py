"""Two sides compared in alternating blocks: one ratio, and the interval in which it lies; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

QUAD = 4
RESAMPLES = 10_000
CONFIDENCE = 0.95
FEWEST_QUADS = 4
"""Fewer cannot be resampled to an interval that means anything."""


def order(blocks: int) -> tuple[bool, ...]:
    """Which blocks are the first side's, in the order of Thue and Morse: ABBA BAAB BAAB ABBA ...

    Both sides meet a drift of the machine alike, whether it is steady or slows down.
    """
    return tuple(number.bit_count() % 2 == 0 for number in range(blocks))


@dataclass(frozen=True, slots=True)
class Ratio:
    """First side over second side, with the bounds of its bootstrap interval; NaN bounds: too few blocks."""

    value: float
    low: float
    high: float

    def judged(self, least: float = -math.inf, most: float = math.inf) -> float | None:
        """The ratio if its whole interval lies on one side of the bound, else None: it cannot be told."""
        kept = least <= self.low and self.high <= most
        broken = self.high < least or self.low > most
        return self.value if kept or broken else None


def ratio_of(first: Sequence[bool], figures: Sequence[float]) -> Ratio:
    """Compare the sides within every four blocks, where they are near in time, then take all fours together.

    The mean of the middle half of the fours counts, so that a disturbance of a few blocks does not.
    """
    if not all(figure > 0 for figure in figures):
        # what was not measured, as processor time where the system does not tell it, has no ratio
        return Ratio(math.nan, math.nan, math.nan)
    logs = np.log(np.array(figures, dtype=float))
    signs = np.where(np.array(first), 1.0, -1.0)
    whole = len(logs) // QUAD * QUAD
    quads = (logs[:whole] * signs[:whole]).reshape(-1, QUAD).sum(axis=1) / (QUAD / 2)
    if len(quads) < FEWEST_QUADS:
        return Ratio(float(np.exp(quads.mean())), math.nan, math.nan)
    draws = np.random.default_rng(0).integers(0, len(quads), size=(RESAMPLES, len(quads)))
    found = np.exp(_middle_mean(quads[draws]))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return Ratio(float(np.exp(_middle_mean(quads[None, :])[0])), float(low), float(high))


def _middle_mean(samples: np.ndarray) -> np.ndarray:
    """The mean of each row without its lowest and its highest quarter."""
    ordered = np.sort(samples, axis=1)
    cut = ordered.shape[1] // 4
    middle: np.ndarray = ordered[:, cut : ordered.shape[1] - cut].mean(axis=1)
    return middle
