"""Numbers as people read them: with their unit, and no more digits than they deserve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

ABSENT = "–"
BARS = "▁▂▃▄▅▆▇█"


def count(value: float | None) -> str:
    """Write a whole number with thousands apart: 12,600."""
    return ABSENT if value is None or not math.isfinite(value) else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Write records per second; small rates keep a digit, so that 0.4/s does not read as nothing."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return f"{value:,.1f}/s" if 0 < abs(value) < 10 else f"{value:,.0f}/s"


def seconds(value: float | None) -> str:
    """Write a span of time: 450 ms, 7.1 s, 12 min, 3.5 h."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s".replace(".0 s", " s")
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def size(value: float | None) -> str:
    """Write an amount of data: 512 B, 1.2 kB, 340 MB."""
    if value is None or not math.isfinite(value):
        return ABSENT
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= factor:
            scaled = value / factor
            return f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.1f} {unit}"
    return f"{value:.0f} B"


def share(value: float | None) -> str:
    """Write a ratio as a percentage."""
    return ABSENT if value is None or not math.isfinite(value) else f"{value:.0%}"


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
