"""A rate profile like those that are recorded on roads: two rush hours, slow swings, a little jitter."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from penstock.dataflow.metrics import Floats

SEED = 2026
HOURS = 6
QUIET, MORNING, EVENING = 20_000.0, 28_000.0, 36_000.0
"""Records per second: what always comes, and what the two rush hours add."""
SWING = 0.03
SWING_SECONDS = 300.0
JITTER = 0.001


def traffic(seed: int = SEED) -> Floats:
    """Records of every second; the same seed gives the same hours."""
    random = np.random.default_rng(seed)
    seconds = np.arange(HOURS * 3600, dtype=np.float64)
    day = seconds / len(seconds)
    rush = MORNING * _hump(day, 0.31, 0.045) + EVENING * _hump(day, 0.74, 0.075)
    rates: Floats = (QUIET + rush) * (1 + _swings(random, len(seconds)))
    return rates * (1 + JITTER * random.standard_normal(len(seconds)))


def write_csv(path: Path, rates: Floats) -> None:
    """One row a second, as `rate: {csv: ...}` of a scenario reads it."""
    rows = "\n".join(f"{second},{rate:.1f}" for second, rate in enumerate(rates.tolist()))
    path.write_text(f"second,rate\n{rows}\n", encoding="utf-8")


def _hump(day: Floats, middle: float, width: float) -> Floats:
    hump: Floats = np.exp(-0.5 * ((day - middle) / width) ** 2)
    return hump


def _swings(random: np.random.Generator, count: int) -> Floats:
    """Noise that remembers some minutes: white noise through an exponential mean, twice."""
    keep = np.exp(-1 / SWING_SECONDS)
    swings: Floats = np.empty(count)
    level, slope = 0.0, 0.0
    for second, shock in enumerate(random.standard_normal(count).tolist()):
        slope = keep * slope + (1 - keep) * shock
        level = keep * level + (1 - keep) * slope
        swings[second] = level
    swings *= SWING / swings.std()
    return swings
