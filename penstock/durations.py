"""Durations as people write them: "500ms", "10s", "5min", "1h", or a plain number of seconds."""

from __future__ import annotations

import re
import sys

SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_WRITTEN = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[a-z]*)\s*", re.IGNORECASE)


def parse_duration(written: object) -> float:
    """The duration in seconds; a ValueError says what was expected."""
    # True is an int in Python, and YAML turns a bare `on` into True
    if isinstance(written, int | float) and not isinstance(written, bool):
        return _finite(written, written)
    match = _WRITTEN.fullmatch(written) if isinstance(written, str) else None
    unit = (match["unit"].lower() or "s") if match else ""
    if match is None or unit not in SECONDS_PER_UNIT:
        raise ValueError(f"{written!r} is not a duration such as 500ms, 10s, 5min, 1h or a number of seconds")
    return _finite(float(match["number"]) * SECONDS_PER_UNIT[unit], written)


def format_duration(seconds: float) -> str:
    """The duration in the largest unit that keeps it a whole number."""
    for unit in ("h", "min", "s"):
        count = seconds / SECONDS_PER_UNIT[unit]
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return "0s" if seconds == 0 else f"{seconds * 1000:.12g}ms"


def _finite(seconds: float, written: object) -> float:
    # a whole number of hundreds of digits is finite, but no float
    if not -sys.float_info.max <= seconds <= sys.float_info.max:
        raise ValueError(f"{written!r} is not a finite duration")
    return float(seconds)
