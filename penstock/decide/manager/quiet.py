"""Periods without changes: hours of every day, or spans of the week.

Times are seconds since the epoch, in UTC; weeks begin on Monday.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

DAY, WEEK = 86_400.0, 7 * 86_400.0
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
FIRST_MONDAY = 4 * DAY
"""The epoch began on a Thursday."""
_DAY = r"(?:([A-Za-z]{3})[a-z]*\s+)?"
_SPAN = re.compile(rf"^{_DAY}(\d{{1,2}}):(\d{{2}})\s*-\s*{_DAY}(\d{{1,2}}):(\d{{2}})$")


@dataclass(frozen=True, slots=True)
class QuietSpan:
    """From one second of the day, or of the week, to another; over its end where the second comes first."""

    start: float
    end: float
    period: float = DAY

    def ends_in(self, now: float) -> float:
        """Return the seconds until the span is over; 0 outside of it."""
        length = (self.end - self.start) % self.period
        since = (now - FIRST_MONDAY - self.start) % self.period
        return length - since if since < length else 0.0


def parse_quiet_spans(written: Sequence[str]) -> tuple[QuietSpan, ...]:
    """Read spans such as `22:00-06:00` and `Fri 18:00-Mon 06:00`; ValueError says what is expected."""
    return tuple(_read_span(part.strip()) for part in written)


def find_quiet_seconds(spans: Sequence[QuietSpan], now: float) -> float:
    """Return the seconds until none of the spans holds any more, a week at most; 0 where none does now."""
    waited = 0.0
    while (more := max((span.ends_in(now + waited) for span in spans), default=0.0)) > 0 and waited < WEEK:
        waited += more
    return min(waited, WEEK)


def tell_wait(seconds: float) -> str:
    """Write how long a period still takes."""
    return f"{seconds / 60:.0f} minutes" if seconds < DAY / 12 else f"{seconds / 3600:.1f} hours"


def _read_span(part: str) -> QuietSpan:
    match = _SPAN.match(part)
    if match is None or (match[1] is None) != (match[4] is None):
        raise ValueError(f"hours such as 22:00-06:00, or Fri 18:00-Mon 06:00, are expected, not {part!r}")
    period = DAY if match[1] is None else WEEK
    start = (_find_day(match[1]) + _read_second(match[2], match[3])) % period
    end = (_find_day(match[4]) + _read_second(match[5], match[6])) % period
    if start == end:
        raise ValueError(f"{part!r} is no span of time")
    return QuietSpan(start, end, period)


def _find_day(name: str | None) -> float:
    if name is None:
        return 0.0
    if name.lower() not in DAYS:
        raise ValueError(f"{name} is no day of the week: {', '.join(day.title() for day in DAYS)}")
    return DAYS.index(name.lower()) * DAY


def _read_second(hour: str, minute: str) -> float:
    if int(minute) > 59 or int(hour) * 60 + int(minute) > 24 * 60:
        raise ValueError(f"{hour}:{minute} is no time of the day")
    return int(hour) * 3600.0 + int(minute) * 60.0
