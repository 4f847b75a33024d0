"""The rate of one source ahead of time: by its trend, by its season, and how well either did of late."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.decide.forecast_settings import ForecastSettings

BINS_PER_SEASON = 1440
"""Means kept for one season: a minute each where it is a day."""
SEASONS_KEPT = 2
MOST_PENDING = 512
FADING = 0.9
"""Share of its weight that a checked forecast keeps when another one is checked: some ten count."""
BETTER_BY = 0.9
"""A forecast is used if its error is below this share of what no forecast at all would have made."""
FARTHEST = 3.0
"""A forecast changes the present rate by this factor at most: a trend does not go on for ever."""
PRESENT, RECENT, TREND, SEASON = "the present rate", "the mean of the last windows", "trend", "season"


@dataclass(frozen=True, slots=True)
class Forecast:
    """The rate expected, by which way, and the recent error of that way; or why there is none."""

    rate: float
    way: str = ""
    error: float = math.nan
    aside: str = ""


@dataclass(slots=True)
class _Score:
    """Mean of recent errors as a share of the rate, the newest counting most."""

    total: float = 0.0
    weight: float = 0.0
    checks: int = 0

    def add(self, error: float) -> None:
        self.total = self.total * FADING + error
        self.weight = self.weight * FADING + 1
        self.checks += 1

    @property
    def error(self) -> float:
        return self.total / self.weight if self.weight else math.nan


@dataclass(slots=True)
class _Bin:
    mean: float
    count: float = 1.0

    def add(self, rate: float) -> None:
        self.count += 1
        self.mean += (rate - self.mean) / self.count


@dataclass(slots=True)
class SourceForecast:
    """Takes one reading a window and says what to expect a horizon later."""

    settings: ForecastSettings
    _recent: deque[tuple[float, float]] = field(default_factory=deque)
    _bins: dict[int, _Bin] = field(default_factory=dict)
    _pending: deque[tuple[float, dict[str, float]]] = field(default_factory=deque)
    _scores: dict[str, _Score] = field(default_factory=dict)

    def take(self, start: float, end: float, rate: float) -> Forecast:
        """Learn from a window's rate, and forecast from its end."""
        if self._recent and end <= self._recent[-1][0]:
            return Forecast(rate, aside="the window is no newer than the last")
        self._check(start, end, rate)
        self._remember(end, rate)
        guesses = self._guesses(end, rate)
        due = end + self.settings.horizon_seconds
        self._pending.append((due, guesses))
        while len(self._pending) > MOST_PENDING:
            self._pending.popleft()
        return self._chosen(guesses, rate)

    def to_plain(self) -> dict[str, Any]:
        """The season so far, for a later run."""
        return {
            "bin_seconds": self._bin_seconds,
            "bins": [[index, entry.mean, entry.count] for index, entry in self._bins.items()],
        }

    def recall(self, body: Mapping[str, Any]) -> None:
        """Take up an earlier run's season; one that was cut otherwise cannot be used."""
        if not math.isclose(float(body["bin_seconds"]), self._bin_seconds):
            raise ValueError("the season has another length now")
        for index, mean, count in body["bins"]:
            if math.isfinite(float(mean)) and float(mean) >= 0 and float(count) > 0:
                self._bins[int(index)] = _Bin(float(mean), float(count))

    @property
    def _bin_seconds(self) -> float:
        return (self.settings.season_seconds or 0.0) / BINS_PER_SEASON

    def _check(self, start: float, end: float, rate: float) -> None:
        """Compare what was expected of this window with what came."""
        while self._pending and self._pending[0][0] <= end:
            due, guesses = self._pending.popleft()
            if due <= start or rate <= 0:
                continue
            for way, guess in guesses.items():
                self._scores.setdefault(way, _Score()).add(abs(guess - rate) / rate)

    def _remember(self, end: float, rate: float) -> None:
        self._recent.append((end, rate))
        while len(self._recent) > self.settings.trend_windows:
            self._recent.popleft()
        if self.settings.season_seconds is None:
            return
        index = math.floor(end / self._bin_seconds)
        if index in self._bins:
            self._bins[index].add(rate)
            return
        self._bins[index] = _Bin(rate)
        while len(self._bins) > SEASONS_KEPT * BINS_PER_SEASON:
            del self._bins[next(iter(self._bins))]

    def _guesses(self, end: float, rate: float) -> dict[str, float]:
        guesses = {PRESENT: rate, RECENT: sum(one for _, one in self._recent) / len(self._recent)}
        trend, season = self._by_trend(end), self._by_season(end, guesses[RECENT])
        if trend is not None:
            guesses[TREND] = min(max(trend, rate / FARTHEST), rate * FARTHEST)
        if season is not None:
            guesses[SEASON] = min(max(season, rate / FARTHEST), rate * FARTHEST)
        return guesses

    def _by_trend(self, end: float) -> float | None:
        """The line of least squares through the last readings."""
        if len(self._recent) < self.settings.trend_windows:
            return None
        count = len(self._recent)
        middle = sum(at for at, _ in self._recent) / count
        mean = sum(rate for _, rate in self._recent) / count
        spread = sum((at - middle) ** 2 for at, _ in self._recent)
        slope = sum((at - middle) * (rate - mean) for at, rate in self._recent) / spread
        # a window's rate is that of its middle, half a window before its end
        half = (self._recent[-1][0] - self._recent[0][0]) / (count - 1) / 2
        return mean + slope * (end + self.settings.horizon_seconds - (middle - half))

    def _by_season(self, end: float, recent: float) -> float | None:
        """What followed one season ago, in proportion to how that time compares with the present."""
        season = self.settings.season_seconds
        if season is None:
            return None
        then = [self._bins.get(math.floor((at - season) / self._bin_seconds)) for at, _ in self._recent]
        ahead = self._bins.get(math.floor((end + self.settings.horizon_seconds - season) / self._bin_seconds))
        if ahead is None or any(entry is None for entry in then):
            return None
        before = sum(entry.mean for entry in then if entry is not None) / len(then)
        return ahead.mean * recent / before if before > 0 else None

    def _chosen(self, guesses: Mapping[str, float], rate: float) -> Forecast:
        """The way that did best of late, if that is good enough."""
        ways = [
            way
            for way in (TREND, SEASON)
            if way in guesses and self._checks(way) >= self.settings.least_checks
        ]
        if not ways:
            return Forecast(rate, aside="no forecast has proved itself yet")
        way = min(ways, key=lambda one: self._scores[one].error)
        error = self._scores[way].error
        plain = min(self._scores[PRESENT].error, self._scores[RECENT].error)
        if error > self.settings.worst_error:
            told = f"its recent error of {error:.0%} is over {self.settings.worst_error:.0%}"
            return Forecast(rate, way, error, told)
        if error >= plain * BETTER_BY:
            return Forecast(rate, way, error, "the rate is as steady as a forecast would be")
        return Forecast(guesses[way], way, error)

    def _checks(self, way: str) -> int:
        return self._scores[way].checks if way in self._scores else 0
