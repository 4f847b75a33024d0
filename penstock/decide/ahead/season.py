"""The rate that came at this time a season ago, and how likely it is to come again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BINS = 1440
"""Means kept of one season: a minute each where it is a day."""
SEASONS_KEPT = 7
RISE = 1.25
"""Times the present rate from which on what a season says counts as a rise that comes, or does not."""
CAME = 0.8
"""The share of a rise that has to come for the season to have been right."""
FADING = 0.995
SIMILAR = 1.5
"""Times the error of the present rate that a season's own may have: beyond it yesterday was another day."""
LEAST_ERROR = 0.02
DAY, HOUR = 86400.0, 3600.0
SHIFTS = (0.0, -HOUR, HOUR)
"""By how much later than now it was a season of days ago: one of them may have 23 or 25 hours."""
BETTER = 0.7
"""The share of the usual error below which another shift is believed."""


@dataclass(slots=True)
class Season:
    """The rates of one source by the time of their season."""

    seconds: float
    _bins: dict[int, list[float]] = field(default_factory=dict)
    """Number of a bin since the beginning of time → sum and count of its readings."""
    _awaited: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=64))
    """When a rise is due, what was said of it, and what the rate was before."""
    _quiet_until: float = -math.inf
    _hits: float = 0.0
    _misses: float = 0.0
    _errors: list[float] = field(default_factory=lambda: [0.0] * (len(SHIFTS) + 2))
    """Faded sums: of the relative errors by each shift, of those of no forecast, and their weight."""
    _newest: float = 0.0

    @property
    def _width(self) -> float:
        return self.seconds / BINS

    def take(self, end: float, rate: float, before: float) -> None:
        """Learn from a reading; `before` is what the rate was a horizon ago."""
        self._check(end, rate, before)
        self._newest = end
        kept = self._bins.setdefault(math.floor(end / self._width), [0.0, 0.0])
        kept[0] += rate
        kept[1] += 1
        while len(self._bins) > SEASONS_KEPT * BINS:
            del self._bins[next(iter(self._bins))]

    def forget_future(self, now: float) -> None:
        """Forget what was seen and awaited at times that have not come yet: the clock was wrong then."""
        present = math.floor(now / self._width)
        self._bins = {index: kept for index, kept in self._bins.items() if index <= present}
        self._awaited.clear()
        self._quiet_until = -math.inf

    def _check(self, end: float, rate: float, before: float) -> None:
        while self._awaited and self._awaited[0][0] <= end:
            _, said, present = self._awaited.popleft()
            came = rate - present >= CAME * (said - present)
            self._hits, self._misses = self._hits + came, self._misses + (not came)
        then = [self._mean(end - self.seconds + shift) for shift in SHIFTS]
        if then[0] is not None and rate > 0:
            guesses = [then[0] if one is None else one for one in then]
            errors = (*(abs(guess - rate) / rate for guess in (*guesses, before)), 1.0)
            self._errors = [FADING * old + new for old, new in zip(self._errors, errors, strict=True)]

    def _mean(self, moment: float) -> float | None:
        kept = self._bins.get(math.floor(moment / self._width))
        return kept[0] / kept[1] if kept else None

    def expect(self, now: float, moment: float, level: float) -> float | None:
        """Return the rate that a season makes of this moment: its largest of the minutes around it."""
        then = moment - self.seconds + SHIFTS[self._shift]
        around = [self._mean(then + shift * self._width) for shift in (-1, 0, 1)]
        known = [rate for rate in around if rate is not None]
        if not known or self._mean(now - self.seconds) is None:
            return None
        expected = max(known)
        if expected > RISE * level and now >= self._quiet_until:
            # it may come a minute later than a season ago, and is counted once
            self._awaited.append((moment + self._width, expected, level))
            self._quiet_until = moment + 5 * self._width
        return expected

    @property
    def _shift(self) -> int:
        """The place of the shift by which the season is right; only a season of whole days has another."""
        own = self._errors[: len(SHIFTS)]
        best = own.index(min(own))
        return best if self.seconds % DAY == 0 and own[best] < BETTER * own[0] else 0

    @property
    def belief(self) -> float:
        """How likely what a season says is to come: by the rises that came, if days are alike at all."""
        own, (plain, weight) = self._errors[self._shift], self._errors[-2:]
        if not weight or own > SIMILAR * max(plain, LEAST_ERROR * weight):
            return 0.0
        return (self._hits + 1) / (self._hits + self._misses + 2)

    @property
    def error(self) -> float:
        """The mean relative error of what the season says."""
        own, weight = self._errors[self._shift], self._errors[-1]
        return max(LEAST_ERROR, own / weight) if weight else 1.0

    def to_plain(self) -> dict[str, Any]:
        """Return the season as plain data, for a later run."""
        bins = [[index, *kept] for index, kept in self._bins.items()]
        return {"seconds": self.seconds, "bins": bins, "hits": self._hits, "misses": self._misses}

    def recall(self, body: Mapping[str, Any]) -> None:
        """Take up an earlier run's season; ValueError where it is of another length, or absurd."""
        if not math.isclose(float(body["seconds"]), self.seconds):
            raise ValueError("the season has another length now")
        bins = {int(index): [float(total), float(count)] for index, total, count in body["bins"]}
        hits, misses = float(body["hits"]), float(body["misses"])
        sums = [value for kept in bins.values() for value in kept]
        if not all(math.isfinite(value) and value >= 0 for value in (*sums, hits, misses)):
            raise ValueError("rates and counts must be numbers of 0 or more")
        self._bins = {index: kept for index, kept in bins.items() if kept[1] > 0}
        self._hits, self._misses = hits, misses
