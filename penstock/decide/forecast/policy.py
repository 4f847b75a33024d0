"""A wrapper for any policy: it is shown the rate that is expected once its change has taken effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, OperatorQuery, SlotQuery, SlotWindow
from penstock.decide.forecast.rates import Forecast, ForecastSettings, SourceForecast
from penstock.decide.policy import Hold, Learner, Policy, Proposal, Scale
from penstock.decide.readings import find_unread_source

PREFIX = "forecast:"
"""The name of a policy with a forecast begins with this."""
RATES = "rates of "
"""Keys of remembered rates begin with this; the rest is the query and its source."""
MOST_SOURCES = 256

Query = TypeVar("Query", SlotQuery, OperatorQuery)


class ForecastPolicy:
    """Replaces offered rates by expected ones where those are higher, and says so, or why it does not."""

    def __init__(self, inner: Policy, settings: ForecastSettings) -> None:
        self.inner = inner
        self._settings = settings
        self._sources: dict[str, SourceForecast] = {}

    @property
    def name(self) -> str:
        """The inner policy's name behind the prefix."""
        return f"{PREFIX}{self.inner.name}"

    @property
    def memory_kind(self) -> str:
        """The kind of the inner policy's memories with the prefix: rates are kept beside them."""
        inner = self.inner.memory_kind if isinstance(self.inner, Learner) else self.inner.name
        return f"{PREFIX}{inner}"

    def learned(self) -> dict[str, Mapping[str, Any]]:
        """Return the rates of the last seasons, and what the inner policy has learned."""
        inner = self.inner.learned() if isinstance(self.inner, Learner) else {}
        rates = {f"{RATES}{key}": source.to_plain() for key, source in self._sources.items()}
        return {**inner, **rates}

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up both; what cannot be used is named."""
        useless: list[str] = []
        for key in (key for key in known if key.startswith(RATES)):
            try:
                self._source(key.removeprefix(RATES)).recall(known[key])
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                useless.append(f"{key}: {error}")
        if isinstance(self.inner, Learner):
            theirs = {key: body for key, body in known.items() if not key.startswith(RATES)}
            return (*useless, *self.inner.recall(theirs))
        return tuple(useless)

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Ask the inner policy about the window as it is expected to be a horizon later."""
        forecasts: dict[str, tuple[float, Forecast]] = {}
        ahead: ApplicationWindow
        if isinstance(window, SlotWindow):
            queries = tuple(self._look_ahead(one, window, forecasts) for one in window.queries)
            ahead = replace(window, queries=queries)
        else:
            own = tuple(self._look_ahead(one, window, forecasts) for one in window.queries)
            ahead = replace(window, queries=own)
        answer = self.inner.propose(ahead)
        if not isinstance(answer, Hold | Scale):
            return answer
        return _add_remark(answer, self._remark(forecasts), _figures(forecasts))

    def _look_ahead(
        self, query: Query, window: ApplicationWindow, forecasts: dict[str, tuple[float, Forecast]]
    ) -> Query:
        """Show the query with its expected rates; a lower rate counts only once it is there."""
        if find_unread_source(query) is not None or window.end <= window.start:
            return query
        sources = dict(query.sources)
        for name in query.graph.sources:
            key, now = f"{query.name}/{name}", sources[name].offered_per_second
            forecast = self._source(key).take(window.start, window.end, now)
            forecasts[key] = (now, forecast)
            sources[name] = replace(sources[name], offered_per_second=max(now, forecast.rate))
        return replace(query, sources=sources)

    def _source(self, key: str) -> SourceForecast:
        if key not in self._sources:
            self._sources[key] = SourceForecast(self._settings)
            while len(self._sources) > MOST_SOURCES:
                del self._sources[next(iter(self._sources))]
        return self._sources[key]

    def _remark(self, forecasts: Mapping[str, tuple[float, Forecast]]) -> str:
        used = [(now, one) for now, one in forecasts.values() if not one.aside]
        if not used:
            asides = {one.aside for _, one in forecasts.values()}
            return f"no forecast: {', '.join(sorted(asides))}" if asides else ""
        now, expected = sum(now for now, _ in used), sum(one.rate for _, one in used)
        ways = " and ".join(sorted({one.way for _, one in used}))
        error = max(one.error for _, one in used)
        told = f"{expected:,.0f}/s expected in {self._settings.horizon:g} s by {ways}"
        sized = "sized for" if expected > now else "not sized down before its time for"
        return f"{sized} {told}, now {now:,.0f}/s, recent error {error:.0%}"


def _figures(forecasts: Mapping[str, tuple[float, Forecast]]) -> dict[str, float]:
    used = [one for _, one in forecasts.values() if not one.aside]
    rate, error = sum(one.rate for one in used), max((one.error for one in used), default=0.0)
    return {"forecast_per_second": rate, "forecast_error_ratio": error} if used else {}


def _add_remark(answer: Hold | Scale, remark: str, figures: Mapping[str, float]) -> Hold | Scale:
    reason = f"{answer.reason}; {remark}" if remark else answer.reason
    if isinstance(answer, Hold):
        return replace(answer, reason=reason, figures={**answer.figures, **figures})
    expected = replace(answer.expected, figures={**answer.expected.figures, **figures})
    return replace(answer, reason=reason, expected=expected)
