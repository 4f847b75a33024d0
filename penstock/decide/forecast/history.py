"""The last windows of one source, as far as they follow each other, and why they do not."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

MOST_MISSED = 3.0
"""Times the usual length of a window for which nothing may have been seen between two of them."""
LONGEST = 10.0
"""Times the usual length of a window beyond which one is no window, but a clock that was set."""
SLACK = 0.01
"""Share of a window by which two may overlap: they follow the ticks of a loop."""


@dataclass(frozen=True, slots=True)
class Break:
    """Why a window does not follow the last one; `ends` says that the windows before count no more.

    A window that is not `usable` itself teaches nothing.
    """

    reason: str
    usable: bool
    ends: bool


@dataclass(slots=True)
class RecentWindows:
    """The ends and rates of the last windows without a gap between them."""

    most: int
    _windows: deque[tuple[float, float, float]] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def points(self) -> list[tuple[float, float]]:
        """The end and the rate of each window, oldest first."""
        return [(end, rate) for _, end, rate in self._windows]

    @property
    def mean(self) -> float:
        """The mean rate; each is divided first, since a sum of huge rates overflows."""
        return sum(rate / len(self._windows) for _, _, rate in self._windows)

    def find_break(self, start: float, end: float) -> Break | None:
        """Say how this window does not follow the last one; None where it does, or is the first."""
        if not self._windows:
            return None
        last_start, last_end, _ = self._windows[-1]
        usual = median(until - since for since, until, _ in self._windows)
        if end <= last_start:
            return Break(f"the clock went back by {last_end - start:g} s", usable=True, ends=True)
        if end <= last_end:
            return Break("the window is no newer than the last", usable=False, ends=False)
        if last_end - start > SLACK * usual:
            overlap = f"the window overlaps the last one by {last_end - start:g} s"
            return Break(overlap, usable=False, ends=False)
        return _find_jump(end - start, start - last_end, usual)

    def add(self, start: float, end: float, rate: float) -> None:
        """Add a window; the oldest is dropped where there are too many."""
        self._windows.append((start, end, rate))
        while len(self._windows) > self.most:
            self._windows.popleft()

    def clear(self) -> None:
        """Forget all windows."""
        self._windows.clear()


def _find_jump(length: float, gap: float, usual: float) -> Break | None:
    """Find a window that is far too long, or for which nothing was seen before it."""
    if length > LONGEST * usual:
        told = f"a window of {length:g} s among windows of {usual:g} s: the clock jumped"
        return Break(told, usable=False, ends=True)
    if gap > MOST_MISSED * usual:
        return Break(f"nothing was seen for {gap:g} s before this window", usable=True, ends=True)
    return None
