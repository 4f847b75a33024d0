"""What gauges, counters and their quotients say of a service."""

from __future__ import annotations

import math

import pytest

from penstock.errors import BadMetrics
from penstock.observe.services.metrics import (
    Formula,
    MetricTerm,
    Scraped,
    parse_formula,
    parse_prometheus,
    take_reading,
)
from penstock.settings.model import load_settings

GAUGES = """
latency{path="/a",code="200"} 0.25
latency{path="/b",code="500"} 0.75
requests_per_second{path="/a"} 100
requests_per_second{path="/b"} 50
error_ratio NaN
"""
EARLIER = """
calls_total{code="200"} 1000
calls_total{code="500"} 10
seconds_sum 500
seconds_count 1010
"""
LATER = """
calls_total{code="200"} 1180
calls_total{code="500"} 30
calls_total{code="404"} 7
seconds_sum 600
seconds_count 1210
"""
BEFORE, NOW = Scraped(100.0, parse_prometheus(EARLIER)), Scraped(110.0, parse_prometheus(LATER))


def value(text: str, before: Scraped | None = BEFORE) -> float:
    return parse_formula(text).value(NOW, before, added=False)


def test_of_gauges_the_mean_counts_and_the_sum_for_throughput():
    metrics = {
        "latency_seconds": "latency",
        "throughput_per_second": "requests_per_second",
        "error_ratio": "error_ratio",
    }
    reading = take_reading(Scraped(5.0, parse_prometheus(GAUGES)), "profiles", metrics)
    assert (reading.name, reading.at) == ("profiles", 5.0)
    assert (reading.latency_seconds, reading.throughput_per_second) == (0.5, 150.0)
    assert math.isnan(reading.error_ratio), "a NaN in the text is nothing measured"


def test_a_counter_is_known_by_its_growth():
    assert value("rate(calls_total)") == pytest.approx(20.0), "a series that is new has no growth yet"
    assert value('rate(calls_total{code="500"})') == pytest.approx(2.0)
    assert value("rate(seconds_sum) / rate(seconds_count)") == pytest.approx(0.5)
    assert value('rate(calls_total{code="500"})/rate(calls_total)') == pytest.approx(0.1)


def test_what_a_counter_has_never_counted_has_not_happened():
    """A service without errors publishes no series of them: its calm must be known when the errors come."""
    assert value('rate(calls_total{code="503"})') == 0.0
    assert value('rate(calls_total{code="503"}) / rate(calls_total)') == 0.0
    assert math.isnan(value('rate(calls_total{code="404"})')), "new, and its growth not known yet"
    assert math.isnan(value('rate(seconds_sum) / rate(calls_total{code="503"})'))


@pytest.mark.parametrize("text", ["rate(no_such)", "no_such", "rate(seconds_sum) / rate(no_such)"])
def test_what_is_not_published_is_unknown(text: str):
    assert math.isnan(value(text))


def test_one_scrape_tells_no_growth_nor_does_a_clock_that_went_back():
    assert math.isnan(value("rate(calls_total)", before=None))
    assert math.isnan(value("rate(calls_total)", before=Scraped(110.0, BEFORE.samples)))


def test_a_counter_that_began_anew_is_left_out():
    restarted = Scraped(120.0, parse_prometheus('calls_total{code="200"} 5\ncalls_total{code="500"} 40\n'))
    assert parse_formula("rate(calls_total)").value(restarted, NOW, added=False) == pytest.approx(1.0)


def test_formulas_as_they_are_written():
    assert parse_formula("latency") == Formula(MetricTerm("latency"))
    assert parse_formula(' rate( a_total { path = "/x/y" } ) ') == Formula(
        MetricTerm("a_total", {"path": "/x/y"}, counter=True)
    )
    assert parse_formula("a/b") == Formula(MetricTerm("a"), MetricTerm("b"))


@pytest.mark.parametrize("text", ["", "rate(a", "rate()", "a / ", "a b", "sum(a)", "a{b=c}", "1 / a"])
def test_what_is_no_formula_is_named(text: str):
    with pytest.raises(BadMetrics):
        parse_formula(text)


def test_settings_are_checked_before_anything_runs():
    good = {"PENSTOCK_SERVICE_METRICS": "latency_seconds=rate(s_sum)/rate(s_count)"}
    assert load_settings(environment=good).services.metrics == {
        "latency_seconds": "rate(s_sum)/rate(s_count)"
    }
    with pytest.raises(Exception, match=r"PENSTOCK_SERVICE_METRICS.*is no metric"):
        load_settings(environment={"PENSTOCK_SERVICE_METRICS": "latency_seconds=sum(a)"})
    with pytest.raises(BadMetrics, match="unknown aspect"):
        take_reading(NOW, "profiles", {"speed": "a"})
