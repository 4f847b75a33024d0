"""When a loop is due, and since when what it sees can be trusted (pure: the time is passed in)."""

from __future__ import annotations

import math

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow

SIZE_FIRST_SECONDS = 60.0
"""Seconds after the start in which state stays until something is known of the size."""


class Timing:
    """The times of one loop: of its first and last tick, the next window, and the last change."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._begun = math.inf
        self._next_at = self._last_now = -math.inf
        self._stale_because = ""
        self.fresh_from = -math.inf
        """Windows that began before this moment say nothing of the application as it is."""

    def take(self, now: float) -> bool:
        """Take the time of a tick; tell whether the clock went back."""
        went_back = now < self._last_now
        if went_back:
            self.distrust_before(now, "the clock went back")
            self._next_at = now
        self._begun, self._last_now = min(self._begun, now), now
        return went_back

    def is_due(self, now: float) -> bool:
        """Tell whether it is time for a window; the next one is due an interval later."""
        late = now - self._next_at
        if late < 0:
            return False
        self._next_at = self._next_at + self._interval if late < self._interval else now + self._interval
        return True

    def is_young(self, now: float) -> bool:
        """Tell whether the loop has run for so short a time that the size comes first."""
        return now < self._begun + SIZE_FIRST_SECONDS

    def distrust_before(self, moment: float, event: str) -> None:
        """Trust no window that began before an event."""
        self.fresh_from, self._stale_because = moment, event

    def find_stale(self, window: ApplicationWindow) -> NotReady | None:
        """Reject a window that began before the last event."""
        if window.start >= self.fresh_from:
            return None
        until = self.fresh_from + (window.end - window.start)
        return NotReady(f"the window began before {self._stale_because}", "a window after it", until)
