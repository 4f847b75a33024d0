"""What services publish, and what a scraped Prometheus text says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.samples import Sample

from penstock.decide.sage.services import ServiceReading
from penstock.errors import BadMetrics
from penstock.observe.services import board as services
from penstock.observe.services.board import ServiceBoard
from penstock.observe.services.metrics import parse_prometheus

TEXT = """# HELP http_latency_seconds Mean latency.
# TYPE http_latency_seconds gauge
http_latency_seconds{path="/a",code="200"} 0.25
http_latency_seconds{path="/b \\"q\\", c",code="500"} 0.75 1700000000000

requests_per_second{path="/a"} 100
requests_per_second{path="/b"} 50
error_ratio NaN
up 1
"""


def test_a_text_becomes_samples():
    samples = parse_prometheus(TEXT)
    assert samples[0] == Sample("http_latency_seconds", {"path": "/a", "code": "200"}, 0.25)
    assert samples[1].labels == {"path": '/b "q", c', "code": "500"}
    assert samples[-1] == Sample("up", {}, 1.0)


@pytest.mark.parametrize("line", ["<html>", 'a{b="c} 1', "a{b=c} 1", "a one", "a"])
def test_a_line_that_is_no_sample_is_named(line: str):
    with pytest.raises(BadMetrics, match="line 2"):
        parse_prometheus(f"up 1\n{line}\n")


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,7}", fullmatch=True), st.text(max_size=20), max_size=3),
    st.floats(allow_nan=False),
)
def test_any_label_value_comes_back(labels: dict[str, str], value: float):
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    kept = {
        k: "".join(c for c in v if c == "\n" or c not in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
        for k, v in labels.items()
    }
    inside = ",".join(f'{key}="{escaped(text)}"' for key, text in kept.items())
    (sample,) = parse_prometheus(f"metric{{{inside}}} {value!r}")
    assert (sample.labels, sample.value) == (kept, value)


def test_the_newest_reading_of_each_service_is_kept_while_it_is_fresh():
    board = ServiceBoard()
    board.publish(ServiceReading("a", 10.0, 0.1))
    board.publish(ServiceReading("a", 20.0, 0.3))
    board.publish(ServiceReading("a", 15.0, 0.2))
    board.publish(ServiceReading("b", 1.0, 0.5))
    assert {n: r.latency_seconds for n, r in board.newest(25.0, 10.0).items()} == {"a": 0.3}


def test_a_clock_that_went_back_an_hour_silences_no_service():
    board = ServiceBoard()
    board.publish(ServiceReading("a", 7200.0, 0.1))
    assert board.newest(3600.0, 60.0) == {}, "of this hour nothing is known"
    board.publish(ServiceReading("a", 3600.0, 0.9))
    assert board.newest(3600.0, 60.0)["a"].latency_seconds == 0.9


def test_publishing_is_one_call():
    services.publish("profiles-of-a-test", latency_seconds=0.2, at=3.0)
    assert services.BOARD.newest(4.0, 10.0)["profiles-of-a-test"].latency_seconds == 0.2
    with pytest.raises(BadMetrics, match="profiles"):
        services.publish("profiles", error_ratio=-0.1)
