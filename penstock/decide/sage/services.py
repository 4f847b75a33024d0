"""Remote services that explain a backlog, and the watch over them (section 3)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.sage.metrics import backlog_of
from penstock.errors import BadMetrics

LEAST_PAIRS = 4
"""Fewer pairs correlate by chance: three points on a rising line always do."""

WORSE = {"latency_seconds": 1.0, "error_ratio": 1.0, "throughput_per_second": -1.0}
"""Aspect → whether more of it is worse, or less."""
ASPECTS = tuple(WORSE)
SAMPLES = 30
LAGS = (0, 1, 2, 3)
"""In windows: a slow service shows in the backlog of the same or of one of the next windows."""


@dataclass(frozen=True, slots=True)
class ServiceReading:
    """One service at one time; an aspect that was not given is NaN."""

    name: str
    at: float
    latency_seconds: float = math.nan
    error_ratio: float = math.nan
    throughput_per_second: float = math.nan


@dataclass(frozen=True, slots=True)
class Correlation:
    """How closely the backlog follows one aspect of a service, and how many samples later."""

    service: str
    aspect: str
    lag: int
    coefficient: float

    @property
    def reason(self) -> str:
        """In plain words."""
        later = f", {self.lag} samples later" if self.lag else ""
        what = self.aspect.rpartition("_")[0] or self.aspect
        return f"the backlog follows the {what} of {self.service} (correlation {self.coefficient:.2f}{later})"


def correlate(cause: Floats, effect: Floats, lag: int) -> float:
    """Return Pearson's coefficient of the effect with the cause `lag` samples earlier; NaN if undefined."""
    if lag < 0:
        raise BadMetrics(f"an effect cannot come before its cause: the lag is {lag}")
    if len(cause) != len(effect):
        raise BadMetrics(f"{len(cause)} samples of the cause, {len(effect)} of the effect")
    # fewer samples than the lag are none; a negative end would count from the back
    first, second = cause[: max(0, len(cause) - lag)], effect[lag:]
    known = np.isfinite(first) & np.isfinite(second)
    first, second = first[known], second[known]
    if len(first) < LEAST_PAIRS or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    first, second = first - first.mean(), second - second.mean()
    spread = math.sqrt(float(first @ first)) * math.sqrt(float(second @ second))
    return float(np.clip(float(first @ second) / spread, -1.0, 1.0)) if spread > 0 else math.nan


def find_strongest(
    backlog: Floats, services: Mapping[str, Mapping[str, Floats]], lags: Sequence[int] = LAGS
) -> Correlation | None:
    """Find the service, aspect and lag that explain the backlog's growth best; None if nothing is measured.

    `services` has what each published of its aspects, in the same samples as the backlog.

    Growth is compared, not the backlog itself: a backlog adds up what a slow service leaves behind, and any
    two rising lines correlate.
    """
    growth = np.diff(backlog, prepend=math.nan)
    found = [
        Correlation(service, aspect, lag, correlate(WORSE[aspect] * values, growth, lag))
        for service, aspects in services.items()
        for aspect, values in aspects.items()
        for lag in lags
    ]
    known = [one for one in found if not math.isnan(one.coefficient)]
    return max(known, key=lambda one: one.coefficient, default=None)


Readings = Callable[[float, float], Mapping[str, ServiceReading]]
"""Now, and how old a reading may be → service → its newest reading."""


class ServiceWatch:
    """One sample a window; called with each window in turn."""

    def __init__(self, newest: Readings, lags: Sequence[int] = LAGS) -> None:
        self._newest, self._lags = newest, lags
        # of the longest lag there must be pairs, too
        samples = max(SAMPLES, 2 * max(lags, default=0))
        self._backlogs: deque[float] = deque(maxlen=samples)
        self._readings: deque[Mapping[str, ServiceReading]] = deque(maxlen=samples)

    def __call__(self, window: ApplicationWindow) -> float:
        """Return the largest correlation of the backlog's growth with a service; NaN where there is none."""
        found = self.look(window)
        return found.coefficient if found is not None else math.nan

    def look(self, window: ApplicationWindow) -> Correlation | None:
        """Find the service that explains the backlog best."""
        self._backlogs.append(backlog_of(window))
        # a reading from before the window says nothing about it
        self._readings.append(self._newest(window.end, window.end - window.start))
        names = sorted({name for readings in self._list_heard() for name in readings})
        histories = {name: self._list_values(name) for name in names}
        return find_strongest(np.array(self._backlogs, dtype=np.float64), histories, self._lags)

    def _list_heard(self) -> list[Mapping[str, ServiceReading]]:
        """Return the readings that may explain this window; a service that fell silent before does not."""
        return list(self._readings)[-1 - max(self._lags, default=0) :]

    def _list_values(self, name: str) -> dict[str, Floats]:
        """Return aspect → what the service published of it; NaN where it said nothing."""
        silence = ServiceReading(name, math.nan)
        said = [readings.get(name, silence) for readings in self._readings]
        return {aspect: np.array([getattr(one, aspect) for one in said]) for aspect in ASPECTS}
