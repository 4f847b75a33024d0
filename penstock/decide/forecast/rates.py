"""Forecasts the rate of one source by trend or by season, and scores both by their recent errors."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar

from pydantic import Field, model_validator

from penstock.units.fields import Count, Duration, OptionalDuration, Ratio
from penstock.units.section import Section

MOST_MISSED = 3.0
"""Times the usual length of a window for which nothing may have been seen between two of them."""
LONGEST = 10.0
"""Times the usual length of a window beyond which one is no window, but a clock that was set."""
SLACK = 0.01
"""Share of a window by which two may overlap: they follow the ticks of a loop."""
BINS_PER_SEASON = 1440
"""Means kept for one season: a minute each where it is a day."""
SEASONS_KEPT = 2
MOST_BINS = SEASONS_KEPT * BINS_PER_SEASON
MOST_PENDING = 512
FADING = 0.9
"""Share of its weight that a checked forecast keeps when another one is checked: some ten count."""
BETTER_BY = 0.9
"""A forecast is used if its error is below this share of what no forecast at all would have made."""
FARTHEST = 3.0
"""A forecast changes the present rate by this factor at most: a trend does not go on for ever."""
WORST = 10.0
"""The largest error that counts, as a share of the rate: beyond it a forecast is just wrong."""
DAY, HOUR = 86400.0, 3600.0
PRESENT, RECENT, TREND, SEASON = "the present rate", "the mean of the last windows", "trend", "season"
SHIFTS = {SEASON: 0.0, f"{SEASON}, an hour earlier": -HOUR, f"{SEASON}, an hour later": HOUR}
"""Ways to use a season of days: one of them may have 23 or 25 hours, for those whose clocks are set."""


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
    most_missed: float = MOST_MISSED
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
        return _find_jump(end - start, start - last_end, usual, self.most_missed)

    def add(self, start: float, end: float, rate: float) -> None:
        """Add a window; the oldest is dropped where there are too many."""
        self._windows.append((start, end, rate))
        while len(self._windows) > self.most:
            self._windows.popleft()

    def clear(self) -> None:
        """Forget all windows."""
        self._windows.clear()


def _find_jump(length: float, gap: float, usual: float, most_missed: float) -> Break | None:
    """Find a window that is far too long, or for which nothing was seen before it."""
    if length > LONGEST * usual:
        told = f"a window of {length:g} s among windows of {usual:g} s: the clock jumped"
        return Break(told, usable=False, ends=True)
    if gap > most_missed * usual:
        return Break(f"nothing was seen for {gap:g} s before this window", usable=True, ends=True)
    return None


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
    _recent: RecentWindows = field(init=False)
    _bins: dict[int, _Bin] = field(default_factory=dict)
    _pending: deque[tuple[float, dict[str, float]]] = field(
        default_factory=lambda: deque(maxlen=MOST_PENDING)
    )
    _scores: dict[str, _Score] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._recent = RecentWindows(self.settings.trend_windows)

    def take(self, start: float, end: float, rate: float) -> Forecast:
        """Learn from a window's rate, and forecast from its end."""
        broken = self._recent.find_break(start, end)
        if broken is not None and broken.ends:
            self._recent.clear()
            self._pending.clear()
        if broken is not None and not broken.usable:
            return Forecast(rate, aside=broken.reason)
        if not self._recent:
            self._forget_future(end)
        self._check(start, end, rate)
        self._remember(start, end, rate)
        guesses = self._guess(end, rate)
        due = end + self.settings.horizon
        self._pending.append((due, guesses))
        return self._choose(guesses, rate) if broken is None else Forecast(rate, aside=broken.reason)

    def to_plain(self) -> dict[str, Any]:
        """Return the season so far as plain data, for a later run."""
        return {
            "bin_seconds": self._bin_seconds,
            "bins": [[index, entry.mean, entry.count] for index, entry in self._bins.items()],
        }

    def recall(self, body: Mapping[str, Any]) -> None:
        """Take up an earlier run's season; one that was cut otherwise cannot be used."""
        if not math.isclose(float(body["bin_seconds"]), self._bin_seconds):
            raise ValueError("the season has another length now")
        bins: dict[int, _Bin] = {}
        for index, mean, count in body["bins"][-MOST_BINS:]:
            if int(index) in bins:
                raise ValueError("a time of the season is there twice")
            if math.isfinite(float(mean)) and float(mean) >= 0 and 0 < float(count) < math.inf:
                bins[int(index)] = _Bin(float(mean), float(count))
        self._bins = bins

    @property
    def _bin_seconds(self) -> float:
        return (self.settings.season or 0.0) / BINS_PER_SEASON

    def _check(self, start: float, end: float, rate: float) -> None:
        """Compare what was expected of this window with what came."""
        while self._pending and self._pending[0][0] <= end:
            due, guesses = self._pending.popleft()
            if due <= start or rate <= 0:
                continue
            for way, guess in guesses.items():
                self._scores.setdefault(way, _Score()).add(min(WORST, abs(guess - rate) / rate))

    def _forget_future(self, now: float) -> None:
        """Forget what was seen at times that have not come yet: the clock was wrong then."""
        if self.settings.season is not None and self._bins:
            present = math.floor(now / self._bin_seconds)
            self._bins = {index: entry for index, entry in self._bins.items() if index <= present}

    def _remember(self, start: float, end: float, rate: float) -> None:
        self._recent.add(start, end, rate)
        if self.settings.season is None:
            return
        index = math.floor(end / self._bin_seconds)
        if index in self._bins:
            self._bins[index].add(rate)
            return
        self._bins[index] = _Bin(rate)
        while len(self._bins) > MOST_BINS:
            del self._bins[next(iter(self._bins))]

    def _guess(self, end: float, rate: float) -> dict[str, float]:
        guesses = {PRESENT: rate, RECENT: self._recent.mean}
        ways = {TREND: self._by_trend(end), **self._by_seasons(end, guesses[RECENT])}
        for way, guess in ways.items():
            if guess is not None and math.isfinite(guess):
                guesses[way] = min(max(guess, rate / FARTHEST), rate * FARTHEST)
        return guesses

    def _by_trend(self, end: float) -> float | None:
        """Extend the line of least squares through the last readings."""
        if len(self._recent) < self.settings.trend_windows:
            return None
        points, count, mean = self._recent.points, len(self._recent), self._recent.mean
        middle = sum(at for at, _ in points) / count
        spread = sum((at - middle) ** 2 for at, _ in points)
        slope = sum((at - middle) * (rate - mean) for at, rate in points) / spread
        # a window's rate is that of its middle, half a window before its end
        half = (points[-1][0] - points[0][0]) / (count - 1) / 2
        return mean + slope * (end + self.settings.horizon - (middle - half))

    def _by_seasons(self, end: float, recent: float) -> dict[str, float | None]:
        """Take what followed one season ago; where that is of days, also an hour earlier and later."""
        season = self.settings.season
        if season is None:
            return {}
        ways = SHIFTS if season % DAY == 0 else {SEASON: 0.0}
        return {way: self._by_season(season + shift, end, recent) for way, shift in ways.items()}

    def _by_season(self, season: float, end: float, recent: float) -> float | None:
        """Take what followed so long ago, in proportion to how that time compares with now."""
        then = [
            self._bins.get(math.floor((at - season) / self._bin_seconds)) for at, _ in self._recent.points
        ]
        ahead = self._bins.get(math.floor((end + self.settings.horizon - season) / self._bin_seconds))
        if ahead is None or any(entry is None for entry in then):
            return None
        before = sum(entry.mean for entry in then if entry is not None) / len(then)
        return ahead.mean * recent / before if before > 0 else None

    def _choose(self, guesses: Mapping[str, float], rate: float) -> Forecast:
        """Choose the way with the smallest recent error, if that is small enough."""
        checks = {way: score.checks for way, score in self._scores.items()}
        ways = [
            way
            for way in (TREND, *SHIFTS)
            if way in guesses and checks.get(way, 0) >= self.settings.least_checks
        ]
        if not ways and len(self._recent) < self.settings.trend_windows:
            told = f"{len(self._recent)} of {self.settings.trend_windows} windows seen for a trend"
            return Forecast(rate, aside=told)
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


class ForecastSettings(Section):
    """Settings of the forecast: on or off, how far ahead, when it is believed; times in seconds."""

    prefix: ClassVar[str] = "forecast_"
    names: ClassVar[Mapping[str, str]] = {"enabled": "forecast"}

    enabled: bool = Field(
        False,
        description="Whether the policy is shown the rate that is expected at the end of `forecast_horizon`, "
        "where that can be told. The policy `forecast:ds2` is ds2 with it, and so on.",
    )
    horizon: Duration = Field(
        60.0,
        gt=0,
        le=86400,
        description="How far ahead a forecast looks: the time from a decision until the new size works.",
    )
    season: OptionalDuration = Field(
        86400.0, gt=0, le=31_536_000, description="After how long loads come back; `none` if they do not."
    )
    worst_error: Ratio = Field(
        0.15,
        gt=0,
        le=1,
        description="The recent error of forecasts, as a share of the rate, above which none is used.",
    )
    trend_windows: Count = Field(
        6, ge=3, le=1000, description="The last policy intervals that a trend is drawn through."
    )
    least_checks: Count = Field(
        6, ge=1, le=1000, description="Forecasts that must have come due before one is believed."
    )

    @model_validator(mode="after")
    def _check_season(self) -> ForecastSettings:
        if self.season is not None and self.season <= self.horizon:
            raise ValueError(
                f"forecast_season ({self.season:g}) is not longer than forecast_horizon ({self.horizon:g})"
            )
        return self
