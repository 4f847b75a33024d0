"""The loads of days, as records in each second relative to their peak; made ones follow from a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np

from penstock.dataflow.metrics import Floats

RECORDED = Path(str(files("penstock_lab.experiments.days") / "recorded"))
HOUR = 3600
FLASH = 10.0
"""Times the usual load of a flash crowd, which comes within so many seconds:"""
FLASH_SECONDS = 30
LEAST = 1e-3
NIGHT_SPIKE = 26 * HOUR
"""When the second spike of `nights` begins."""


def make_ramp(random: np.random.Generator) -> Floats:
    """Rise slowly from a tenth to the peak, stay, and fall as slowly."""
    rise, stay = random.uniform(1.6, 2.2), random.uniform(0.3, 0.7)
    hours = np.array([0, 0.4, 0.4 + rise, 0.4 + rise + stay, 0.4 + 2 * rise + stay, 6])
    return np.interp(np.arange(6 * HOUR) / HOUR, hours, [0.1, 0.1, 1, 1, 0.1, 0.1])


def make_nights(random: np.random.Generator) -> Floats:
    """Have the same spike in two nights: four times the load within a minute, for half an hour."""
    seconds = np.arange(28 * HOUR)
    base = 0.2 + 0.04 * np.sin(2 * np.pi * (seconds / HOUR + random.uniform(0, 24)) / 24)
    into = (seconds - NIGHT_SPIKE) % (24 * HOUR)
    spike = np.interp(into, [0, 60, 1800, 2100, 24 * HOUR], [0, 1, 1, 0, 0])
    return base * (1 + 3 * spike)


def make_flash(random: np.random.Generator) -> Floats:
    """Have flash crowds of ten times the load within half a minute, at times that nobody can foresee."""
    load = np.ones(4 * HOUR)
    seconds = np.arange(len(load))
    for number in range(3):
        start = HOUR * (0.5 + 1.15 * number) + random.uniform(0, 0.6 * HOUR)
        lasts = random.uniform(300, 900)
        edges = start + np.array([0, FLASH_SECONDS, lasts, lasts + 120])
        load += (FLASH - 1) * np.interp(seconds, edges, [0, 1, 1, 0])
    return load


def make_week(random: np.random.Generator) -> Floats:
    """Have a week in fourteen hours: days of two, weekends that are lower, and loads that stray."""
    days = np.arange(14 * HOUR) / (2 * HOUR)
    daily = 1 - 0.6 * np.cos(2 * np.pi * (days % 1 - random.uniform(0, 0.2)))
    weekly = np.where(days.astype(np.int64) % 7 >= 5, 0.6, 1.0)
    return daily * weekly * np.exp(0.05 * _stray(random, len(days), 120))


def make_busy(random: np.random.Generator) -> Floats:
    """Have two rush hours in six, and loads that stray within minutes."""
    share = np.arange(6 * HOUR) / (6 * HOUR)
    first, second = random.uniform(0.2, 0.4), random.uniform(0.6, 0.8)
    load = 0.3 + 0.5 * np.exp(-0.5 * ((share - first) / 0.05) ** 2)
    load = load + 0.7 * np.exp(-0.5 * ((share - second) / 0.07) ** 2)
    return load * np.exp(0.03 * _stray(random, len(share), 300))


def make_jagged(random: np.random.Generator) -> Floats:
    """Go in straight lines from one load to another that has little to do with it, every other minute."""
    steps = np.cumsum(random.uniform(60, 180, 400))
    loads = np.exp(0.35 * random.standard_normal(400))
    return np.interp(np.arange(6 * HOUR), steps, loads)


def _stray(random: np.random.Generator, count: int, seconds: float) -> Floats:
    """Return normal values that remember so many seconds, with a deviation of one."""
    keep = math.exp(-1 / seconds)
    strayed = np.empty(count)
    value = 0.0
    for second, shock in enumerate(random.standard_normal(count).tolist()):
        value = keep * value + shock
        strayed[second] = value
    strayed *= math.sqrt(1 - keep**2)
    return strayed


MADE: Mapping[str, Callable[[np.random.Generator], Floats]] = {
    "ramp": make_ramp,
    "nights": make_nights,
    "flash": make_flash,
    "week": make_week,
}
TUNED_ON: Mapping[str, Callable[[np.random.Generator], Floats]] = {"busy": make_busy, "jagged": make_jagged}
"""Days that the benchmark does not show: they, and the others under other seeds, are there to tune on."""


def list_recorded() -> tuple[str, ...]:
    """List the recorded days that are shipped."""
    return tuple(sorted(path.stem for path in RECORDED.glob("*.csv")))


def make_day(name: str, seed: int) -> Floats:
    """Return the records of each second of a day relative to its peak; a recorded day knows no seed."""
    makers = {**MADE, **TUNED_ON}
    if name in makers:
        load = makers[name](np.random.default_rng([seed, sum(name.encode())]))
    else:
        load = read_recorded(RECORDED / f"{name}.csv")
    relative: Floats = np.maximum(load / load.max(), LEAST)
    return relative


def read_recorded(path: Path) -> Floats:
    """Read a shape: lines `second,load` with a rising second, which is joined by straight lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = np.array([line.split(",") for line in lines if line[:1].isdigit()], dtype=np.float64)
    seconds, loads = rows[:, 0], rows[:, 1]
    return np.interp(np.arange(seconds[-1]), seconds, loads)
