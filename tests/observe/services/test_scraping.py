"""Remote services scraped from a real HTTP server, with its faults."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator

import pytest
from prometheus_client.samples import Sample

from penstock.errors import BadInput, BadMetrics
from penstock.observe.services.board import ServiceBoard
from penstock.observe.services.scraping import LARGEST_TEXT, Scrape, Scraper, list_scrapes, scrape_service
from tests.observe.web_server import WebServer
from tests.waiting import wait_for

TEXT = """# HELP call_seconds how long calls take
# TYPE call_seconds gauge
call_seconds{pod="a"} 0.2
call_seconds{pod="b"} 0.4
failed_ratio 0.05
calls_per_second{pod="a"} 100
calls_per_second{pod="b"} 150 1700000000000
"""
METRICS = {
    "latency_seconds": "call_seconds",
    "error_ratio": "failed_ratio",
    "throughput_per_second": "calls_per_second",
}


@pytest.fixture
def service() -> Iterator[WebServer]:
    made = WebServer(TEXT)
    yield made
    made.close()


def test_what_a_service_publishes_is_read(service: WebServer):
    found = scrape_service(Scrape("profiles", service.url, METRICS), 7.0, 5.0)
    assert found.at == 7.0 and len(found.samples) == 5
    assert found.samples[1] == Sample("call_seconds", {"pod": "b"}, 0.4)


def test_counters_count_from_the_second_scrape_on(service: WebServer):
    board, times = ServiceBoard(), iter((100.0, 105.0))
    metrics = {"throughput_per_second": "rate(calls_total)", "error_ratio": "failed_ratio"}
    scraper = Scraper((Scrape("profiles", service.url, metrics),), 1.0, 5.0, board, lambda: next(times))
    service.text = "calls_total 1000\nfailed_ratio 0.05\n"
    scraper.look()
    first = board.newest(100.0, 60.0)["profiles"]
    assert math.isnan(first.throughput_per_second) and first.error_ratio == 0.05
    service.text = "calls_total 1500\nfailed_ratio 0.06\n"
    scraper.look()
    assert board.newest(105.0, 60.0)["profiles"].throughput_per_second == 100.0


@pytest.mark.parametrize(
    ("status", "text", "delay", "said"),
    [(500, TEXT, 0.0, "500"), (200, "not a sample at all {", 0.0, "line 1"), (200, TEXT, 1.0, "timed out")],
)
def test_faults_are_named(service: WebServer, status, text, delay, said):
    service.status, service.text, service.delay = status, text, delay
    with pytest.raises((BadInput, BadMetrics), match=said):
        scrape_service(Scrape("profiles", service.url, METRICS), 7.0, 0.3)


@pytest.mark.parametrize("part", ["body", "head"])
def test_a_service_that_drips_is_not_waited_for(service: WebServer, part: str):
    """Each byte comes in time, and all of them take two seconds."""
    service.dripping, service.drip = part, 0.05
    with pytest.raises(BadInput, match=r"profiles: .* timed out after 0.3 s"):
        scrape_service(Scrape("profiles", service.url, METRICS), 7.0, 0.3)


def test_a_service_does_not_lead_elsewhere(service: WebServer):
    """The metadata of a cloud's machine, for one, answer whoever asks from inside."""
    inside = WebServer(TEXT)
    service.status, service.headers = 302, {"Location": inside.url}
    with pytest.raises(BadInput, match="redirects are not followed"):
        scrape_service(Scrape("profiles", service.url, METRICS), 7.0, 5.0)
    assert inside.asked == 0
    inside.close()


def test_a_text_without_end_is_refused(service: WebServer):
    service.text = "# " + "x" * (LARGEST_TEXT + 1)
    with pytest.raises(BadInput, match="longer than 8 MB"):
        scrape_service(Scrape("profiles", service.url, METRICS), 7.0, 60.0)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://", "http://a:b:c/", "http://[", "ftp://a/"])
def test_what_is_no_address_is_refused(url: str):
    with pytest.raises(BadInput, match="cannot be read"):
        scrape_service(Scrape("profiles", url, METRICS), 7.0, 5.0)


def test_nobody_there():
    with pytest.raises(BadInput, match="service profiles"):
        scrape_service(Scrape("profiles", "http://127.0.0.1:9/metrics", METRICS), 7.0, 0.5)


def test_trouble_is_said_once_and_tried_again(service: WebServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, logger="penstock.observe.services.scraping")
    board = ServiceBoard()
    scraper = Scraper((Scrape("profiles", service.url, METRICS),), 1.0, 5.0, board, clock=lambda: 100.0)
    service.status = 503
    scraper.look()
    scraper.look()
    assert len(caplog.records) == 1 and board.newest(100.0, 60.0) == {}
    service.status = 200
    scraper.look()
    assert board.newest(100.0, 60.0)["profiles"].error_ratio == 0.05


def test_a_thread_scrapes_until_it_is_closed(service: WebServer):
    board = ServiceBoard()
    with Scraper((Scrape("profiles", service.url, METRICS),), 0.02, 5.0, board):
        wait_for("a second request", lambda: service.asked >= 2, every=0.01)
    assert "profiles" in board.newest(time.time(), 60.0)


def test_own_metrics_outrank_those_for_all():
    services = {"profiles": "http://a", "prices": "http://b", "profiles.eu": "http://c"}
    metrics = {"latency_seconds": "seconds", "profiles.latency_seconds": "own", "prices.error_ratio": "bad"}
    first, second, third = list_scrapes(services, {**metrics, "profiles.eu.error_ratio": "dotted"})
    assert first.metrics == {"latency_seconds": "own"}
    assert second.metrics == {"latency_seconds": "seconds", "error_ratio": "bad"}
    assert third.metrics == {"latency_seconds": "seconds", "error_ratio": "dotted"}
