"""Numbers as people read them: with their unit, and no more digits than they deserve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from penstock.units.figures import ABSENT, count, count_of, seconds, size

__all__ = [
    "ABSENT", "clock", "count", "count_of", "day_and_clock", "money", "plain", "rate", "seconds", "share",
    "size", "sparkline", "stopwatch",
]  # fmt: skip
BARS = "▁▂▃▄▅▆▇█"


def rate(value: float | None) -> str:
    """Write records per second; small rates keep a digit, so that 0.4/s does not read as nothing."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return f"{value:,.1f}/s" if 0 < abs(value) < 10 else f"{value:,.0f}/s"


def share(value: float | None) -> str:
    """Write a ratio as a percentage."""
    return ABSENT if value is None or not math.isfinite(value) else f"{value:.0%}"


def money(value: float) -> str:
    """Write an amount of money, in whatever currency prices are."""
    return f"{value:.4f}" if 0 < value < 1 else f"{value:,.2f}"


def clock(at: float | None) -> str:
    """Write the local time of day."""
    return ABSENT if at is None else datetime.fromtimestamp(at).strftime("%H:%M:%S")


def day_and_clock(at: float | None) -> str:
    """Write the local date and time of day."""
    return ABSENT if at is None else datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")


def stopwatch(value: float) -> str:
    """Write the time since a start: 1:02:30."""
    whole = int(value)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def plain(value: object) -> str:
    """Write a value of any kind as text: whole numbers with thousands apart, fractions with one digit."""
    if isinstance(value, float):
        return f"{value:,.1f}" if math.isfinite(value) else ABSENT
    return f"{value:,}" if isinstance(value, int) else str(value)


def sparkline(values: Sequence[float | None], width: int, top: float | None = None) -> str:
    """Draw the last values as one bar each from zero to `top`; an unknown value is a gap."""
    shown = values[-width:] if width > 0 else []
    known = [value for value in shown if value is not None and math.isfinite(value)]
    highest = max([*known, 0.0]) if top is None else top
    return "".join(_bar(value, highest) for value in shown).rjust(width)


def _bar(value: float | None, highest: float) -> str:
    if value is None or not math.isfinite(value):
        return " "
    if highest <= 0:
        return BARS[0]
    return BARS[min(len(BARS) - 1, max(0, round(value / highest * (len(BARS) - 1))))]
