"""Metrics of a service: gauges as they are, counters by their growth, quotients of them (pure).

call_latency_seconds                                          a gauge, or the mean of several
rate(calls_total)                                             a counter's growth a second
rate(call_seconds_sum) / rate(call_seconds_count)             the mean of a histogram or summary
rate(calls_total{code="500"}) / rate(calls_total)             with labels that a series must have
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.decide.sage.services import ServiceReading
from penstock.errors import BadMetrics

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_SERIES = r"[a-zA-Z_:][a-zA-Z0-9_:]*\s*(?:\{[^}]*\})?"
_TERM = re.compile(rf"^(?:rate\(\s*(?P<counter>{_SERIES})\s*\)|(?P<gauge>{_SERIES}))$")
_PARTS = re.compile(r"^(?P<name>[^{\s]+)\s*(?:\{(?P<labels>[^}]*)\})?$")
ASPECTS = ("latency_seconds", "error_ratio", "throughput_per_second")


def parse_prometheus(text: str) -> list[Sample]:
    """Return the samples of a Prometheus text; BadMetrics names the first line that is none."""
    from prometheus_client.parser import text_string_to_metric_families  # few applications watch services

    try:
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except ValueError as error:
        raise BadMetrics(f"{_find_bad_line(text)}: {error}") from None


def _find_bad_line(text: str) -> str:
    """Find the line that the parser, which counts none, stopped at."""
    from prometheus_client.parser import text_string_to_metric_families

    for number, line in enumerate(text.split("\n"), start=1):
        try:
            list(text_string_to_metric_families(line))
        except ValueError:
            return f"line {number} is no Prometheus sample, {line.strip()[:80]!r}"
    return "this is no Prometheus text"


@dataclass(frozen=True, slots=True)
class Scraped:
    """All samples of one scrape."""

    at: float
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class MetricTerm:
    """The series of one name that have these labels."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    counter: bool = False

    def values(self, now: Scraped, before: Scraped | None) -> list[float]:
        """Return a value for each series: the gauge itself, or the counter's growth a second."""
        found = self._series(now)
        if not self.counter:
            return [value for value in found.values() if math.isfinite(value)]
        if before is None or now.at <= before.at:
            return []
        if not found and self._counts_others(now) and self._counts_others(before):
            # clients publish a series from its first count on: until then nothing of it has happened
            return [0.0]
        earlier, seconds = self._series(before), now.at - before.at
        grown = [value - earlier[labels] for labels, value in found.items() if labels in earlier]
        # a counter that fell has begun anew, and its growth is not known
        return [more / seconds for more in grown if 0 <= more < math.inf]

    def _counts_others(self, scraped: Scraped) -> bool:
        """Whether the counter has series, of whatever labels."""
        return any(sample.name == self.name for sample in scraped.samples)

    def _series(self, scraped: Scraped) -> dict[tuple[tuple[str, str], ...], float]:
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for sample in scraped.samples
            if sample.name == self.name and self.labels.items() <= sample.labels.items()
        }


@dataclass(frozen=True, slots=True)
class Formula:
    """A term, or the quotient of two."""

    above: MetricTerm
    below: MetricTerm | None = None

    def value(self, now: Scraped, before: Scraped | None, added: bool) -> float:
        """Evaluate it: counters and quotients add up all series, gauges take their mean; NaN if unknown."""
        above = self.above.values(now, before)
        if not above:
            return math.nan
        if self.below is None:
            return sum(above) / (1 if added or self.above.counter else len(above))
        below = sum(self.below.values(now, before))
        return sum(above) / below if below > 0 else math.nan


def parse_formula(text: str) -> Formula:
    """Parse a formula as it is written in the settings; BadMetrics says what is expected."""
    above, sign, below = _split(text)
    return Formula(_term(above, text), _term(below, text) if sign else None)


def take_reading(
    now: Scraped, name: str, metrics: Mapping[str, str], before: Scraped | None = None
) -> ServiceReading:
    """Take a reading from a scrape and the one before it; `metrics` maps aspects to formulas."""
    aspects = {}
    for aspect, text in metrics.items():
        if aspect not in ASPECTS:
            raise BadMetrics(f"service {name!r}: unknown aspect {aspect!r}")
        aspects[aspect] = parse_formula(text).value(now, before, added=aspect == "throughput_per_second")
    return ServiceReading(name, now.at, **aspects)


def _split(text: str) -> tuple[str, str, str]:
    """Split at the sign of division that is not inside a label's value."""
    quoted = False
    for place, letter in enumerate(text):
        quoted ^= letter == '"'
        if letter == "/" and not quoted:
            return text[:place], letter, text[place + 1 :]
    return text, "", ""


def _term(written: str, text: str) -> MetricTerm:
    from prometheus_client.parser import parse_labels

    match = _TERM.match(written.strip())
    parts = _PARTS.match((match["counter"] or match["gauge"]).strip()) if match else None
    if match is None or parts is None:
        raise BadMetrics(
            f"{text!r} is no metric: a name is expected, rate(name) for a counter, or a quotient of two"
        )
    try:
        labels = parse_labels(parts["labels"] or "")
    except ValueError as error:
        raise BadMetrics(f"{text!r} has labels that cannot be read: {error}") from None
    return MetricTerm(parts["name"], labels, match["counter"] is not None)
