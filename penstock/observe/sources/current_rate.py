"""The rate at which something comes now, by the moments at which more of it had come (pure).

A mean over the window would do for what comes evenly and is seen often. But files may come once a minute, a
source is looked at once a batch, however long that is, and after an idle night the first minute must count,
not the night.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats

GAPS_OF_A_PAUSE = 4
"""After so many usual gaps without more, and at least a window, the source has paused."""
AT_ONCE = 0.05
"""Arrivals within this part of a window are one moment: many files are often written in one go."""
_MOMENTS = 24
"""More than a window can hold (1 / AT_ONCE), and enough to tell which gap is usual."""


@dataclass(frozen=True, slots=True)
class Rises:
    """How much had come by each of some moments, in order.

    `newest_amount` came with the last of them, within the `newest_seconds` before it. A rate is taken over at
    least `least_gaps` between moments, where that needs no pause to be crossed. Nothing is known of the time
    before `known_since`.
    """

    moments: Floats
    totals: Floats
    newest_amount: float
    newest_seconds: float
    least_gaps: int
    known_since: float


def current_rate(rises: Rises, start: float, end: float) -> float:
    """Return what comes per second about the window [start, end).

    The rate is taken from one moment to another, so that the window's edges cut no gap: from the one nearest
    to its start, at least half a window before the last one, but never across a pause. What comes at once
    after a pause counts as having come over half a window.
    """
    seconds = end - start
    if not seconds > 0 or not len(rises.moments):
        return 0.0
    gaps = np.diff(rises.moments)
    usual = float(np.median(gaps)) if len(gaps) >= 2 else 0.0
    pause = max(seconds, GAPS_OF_A_PAUSE * usual)
    last = float(rises.moments[-1])
    if end - last > pause:
        return 0.0
    first = _choose_first(rises, gaps, pause, start, seconds)
    if first == len(gaps):
        return rises.newest_amount / max(seconds / 2, usual, rises.newest_seconds)
    # more is due a usual gap after the last moment; only what lies beyond is time in which nothing came
    until = max(last, end - usual)
    come = float(rises.totals[-1] - rises.totals[first])
    return come / max(until - float(rises.moments[first]), min(seconds / 2, end - rises.known_since))


def _choose_first(rises: Rises, gaps: Floats, pause: float, start: float, seconds: float) -> int:
    moments = rises.moments
    first = len(gaps)
    while first and gaps[first - 1] <= pause:
        enough = moments[-1] - moments[first] >= seconds / 2 and len(gaps) - first >= rises.least_gaps
        if enough and abs(moments[first - 1] - start) >= abs(moments[first] - start):
            break
        first -= 1
    return first


def arrival_rate(arrivals: Floats, start: float, end: float, amounts: Floats | None = None) -> float:
    """Return what came per second about the window [start, end), one with each arrival or these amounts.

    Arrivals are sorted, and may reach back.
    """
    seen = arrivals[: int(np.searchsorted(arrivals, end))]
    each = np.ones(len(seen)) if amounts is None else amounts[: len(seen)]
    come = np.concatenate(([0.0], np.cumsum(each)))
    at_once = AT_ONCE * (end - start)
    moments = _moments(seen, at_once)
    if not len(moments):
        return 0.0
    totals = come[np.searchsorted(seen, moments, side="right")]
    newest = float(come[-1] - come[np.searchsorted(seen, moments[-1] - at_once)])
    return current_rate(Rises(moments, totals, newest, end - start, 2, -np.inf), start, end)


def _moments(seen: Floats, at_once: float) -> Floats:
    """Return the newest moments at which something came; each is the last of those that came at once."""
    moments: list[float] = []
    right = len(seen)
    while right and len(moments) < _MOMENTS:
        moments.append(float(seen[right - 1]))
        right = int(np.searchsorted(seen, moments[-1] - at_once))
    return np.array(moments[::-1])
