"""What can be set on the forecast."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.decide.ranges import require


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    """Settings of the forecast; times in seconds.

    `horizon_seconds` is the scaling delay: the time from a decision until the new size has worked itself in.
    `season_seconds` is after how long loads come back; None for loads that do not.
    `worst_error` is the recent error, as a share of the rate, above which no forecast is used.
    `trend_windows` are the last readings that a trend is drawn through.
    `least_checks` is how many forecasts must have come due before one is believed.
    """

    horizon_seconds: float = 60.0
    season_seconds: float | None = 86400.0
    worst_error: float = 0.15
    trend_windows: int = 6
    least_checks: int = 6

    def __post_init__(self) -> None:
        require("horizon_seconds", self.horizon_seconds)
        if self.season_seconds is not None:
            require("season_seconds", self.season_seconds, self.horizon_seconds)
        require("worst_error", self.worst_error, 0, 1)
        require("trend_windows", self.trend_windows, 3, above=False)
        require("least_checks", self.least_checks, 1, above=False)
