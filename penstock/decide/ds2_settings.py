"""What can be set on the DS2 policy, for both execution models."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.errors import BadSettings


@dataclass(frozen=True, slots=True)
class Ds2Settings:
    """Settings of DS2; times in seconds, ratios as fractions of one.

    `utilisation` is the share of its capacity that the application may use, the rest is headroom.
    `catch_up_seconds` is the time in which a backlog is to be read, on top of the offered rate.
    `default_period_seconds` is the batch period of a query that has no trigger interval.
    `target_rate_ratio` corrects for costs that the instrumentation misses (section 4.2.1); 1.0 is off.
    """

    utilisation: float = 0.8
    catch_up_seconds: float = 600.0
    default_period_seconds: float = 10.0
    latency_target_seconds: float | None = None
    max_slots: int = 1024
    unscalable: frozenset[str] = frozenset()
    target_rate_ratio: float = 1.0

    def __post_init__(self) -> None:
        _check("utilisation", self.utilisation, self.utilisation <= 1)
        _check("catch_up_seconds", self.catch_up_seconds)
        _check("default_period_seconds", self.default_period_seconds)
        if self.latency_target_seconds is not None:
            _check("latency_target_seconds", self.latency_target_seconds)
        _check("max_slots", self.max_slots)
        _check("target_rate_ratio", self.target_rate_ratio, self.target_rate_ratio >= 1)


def _check(key: str, value: float, in_range: bool = True) -> None:
    if not (math.isfinite(value) and value > 0 and in_range):
        raise BadSettings(f"{key} is out of range: {value}")
