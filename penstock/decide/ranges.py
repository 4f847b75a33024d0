"""Range checks of the settings of policies."""

from __future__ import annotations

import math

from penstock.errors import BadSettings


def require(key: str, value: float, low: float = 0.0, high: float = math.inf, *, above: bool = True) -> None:
    """Raise unless low < value ≤ high (low ≤ value with `above=False`); infinite and NaN never pass."""
    in_range = (value > low if above else value >= low) and value <= high
    if not (math.isfinite(value) and in_range):
        raise BadSettings(f"{key} is out of range: {value}")


def require_limits(least: int, most: int) -> None:
    """Raise unless 1 ≤ least ≤ most."""
    require("min_instances", least, 1, above=False)
    require("max_instances", most, least, above=False)
