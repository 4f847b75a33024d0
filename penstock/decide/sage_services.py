"""Whether a backlog follows a remote service: time-lagged cross-correlation (section 4, remote services)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.errors import BadMetrics

LEAST_PAIRS = 4
"""Fewer pairs correlate by chance: three points on a rising line always do."""

WORSE_WHEN_HIGHER = ("latency_seconds", "error_ratio")
WORSE_WHEN_LOWER = ("throughput_per_second",)
ASPECTS = WORSE_WHEN_HIGHER + WORSE_WHEN_LOWER


@dataclass(frozen=True, slots=True)
class ServiceHistory:
    """What one service published, in the same samples as the backlog; NaN where it said nothing."""

    name: str
    latency_seconds: Floats
    error_ratio: Floats
    throughput_per_second: Floats


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


def lagged_correlation(cause: Floats, effect: Floats, lag: int) -> float:
    """Pearson's coefficient of the effect with the cause `lag` samples earlier; NaN where it is undefined."""
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


def strongest(
    backlog: Floats, services: Sequence[ServiceHistory], lags: Sequence[int] = (0, 1, 2, 3)
) -> Correlation | None:
    """The service, aspect and lag that explain the backlog's growth best; None where nothing is measured.

    Growth is compared, not the backlog itself: a backlog adds up what a slow service leaves behind, and any
    two rising lines correlate.
    """
    growth = np.diff(backlog, prepend=math.nan)
    found = [
        Correlation(service.name, aspect, lag, lagged_correlation(cause, growth, lag))
        for service in services
        for aspect, cause in _causes(service).items()
        for lag in lags
    ]
    known = [one for one in found if not math.isnan(one.coefficient)]
    return max(known, key=lambda one: one.coefficient, default=None)


def _causes(service: ServiceHistory) -> Mapping[str, Floats]:
    """Each aspect so that more of it is worse."""
    worse = {aspect: getattr(service, aspect) for aspect in WORSE_WHEN_HIGHER}
    return worse | {aspect: -getattr(service, aspect) for aspect in WORSE_WHEN_LOWER}
