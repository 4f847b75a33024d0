"""Hours of the day in which nothing is restarted (pure; times in seconds since the epoch, in UTC)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

DAY = 86_400.0
_SPAN = re.compile(r"^(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})$")


@dataclass(frozen=True, slots=True)
class QuietSpan:
    """From one second of the day to another; one that ends before it begins goes over midnight."""

    start: float
    end: float

    def ends_in(self, now: float) -> float:
        """Seconds until the span is over; 0 outside of it."""
        second, length = now % DAY, (self.end - self.start) % DAY or DAY
        since = (second - self.start) % DAY
        return length - since if since < length else 0.0


def parse_quiet_hours(written: Sequence[str]) -> tuple[QuietSpan, ...]:
    """Spans such as `22:00-06:00`; ValueError says what is expected."""
    return tuple(_span(part.strip()) for part in written)


def quiet_for(spans: Sequence[QuietSpan], now: float) -> float:
    """Seconds until none of the spans holds any more; 0 where none does now."""
    waited = 0.0
    while (more := max((span.ends_in(now + waited) for span in spans), default=0.0)) > 0 and waited < DAY:
        waited += more
    return min(waited, DAY)


def _span(part: str) -> QuietSpan:
    match = _SPAN.match(part)
    if match is None:
        raise ValueError(f"hours such as 22:00-06:00 are expected, not {part!r}")
    start, end = _second(match[1], match[2]), _second(match[3], match[4])
    if start == end:
        raise ValueError(f"{part!r} is no span of time")
    return QuietSpan(start, end)


def _second(hour: str, minute: str) -> float:
    if int(minute) > 59 or int(hour) * 60 + int(minute) > 24 * 60:
        raise ValueError(f"{hour}:{minute} is no time of the day")
    return (int(hour) * 3600.0 + int(minute) * 60.0) % DAY
