"""The tab in the Spark UI: what it says, and that the loop never waits for it."""

from __future__ import annotations

import logging
import threading

import pytest

from penstock.errors import SparkUnavailable, Unsupported
from penstock.runtime.pace import describe_pace
from penstock.runtime.ui_tab import LONGEST_TEXT, PartKeeper, UIPart, render_tab, serves_prometheus
from tests.view.made_up import status
from tests.waiting import wait_for


class RememberedTab:
    """A tab that remembers what it was told, and is as slow as it is told to be."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.closed = False
        self.may_show = threading.Event()
        self.may_show.set()

    def show(self, text: str) -> None:
        self.may_show.wait(30)
        self.shown.append(text)

    def close(self) -> None:
        self.closed = True


class Told:
    """Something to describe, with its version."""

    def __init__(self) -> None:
        self.version = 0

    def keeper(self, tab: UIPart) -> PartKeeper:
        return PartKeeper("app-1", "tab", lambda: tab, lambda: f"v{self.version}", lambda: str(self.version))


def test_what_others_wrote_is_text() -> None:
    made = status(name="<script>x</script>")
    made["decisions"][-1]["reason"] = "<img src=x onerror=1>" + "y" * 10_000
    page = render_tab(made)
    assert "<script" not in page and "<img" not in page
    assert "&lt;script&gt;x" in page and "&lt;img src=x" in page
    assert "y" * LONGEST_TEXT not in page, "a reason of any length is cut"


def test_it_says_how_the_application_stands() -> None:
    made = status()
    assert describe_pace({**made, "recent": []}).startswith("starting")
    query = {
        "behind": True,
        "backlog_records": 30_000.0,
        "offered_per_second": 1000.0,
        "period_seconds": 10.0,
    }
    sizes = {"recent": [query], "slots": 6, "executors": 3, "slots_needed": 7.5}
    assert (
        describe_pace({"queries": [query], **sizes})
        == "behind: 30 s of input wait; 3 executors held, 4 needed"
    )
    assert describe_pace({"queries": [{**query, "behind": False}], **sizes}).startswith("keeps up")
    slow = {**query, "backlog_records": 0.0, "batch_seconds": 12.0}
    assert describe_pace({"queries": [slow], **sizes}).startswith("behind: a batch takes 12 s of 10 s")


def test_it_is_shown_anew_only_when_something_changed() -> None:
    tab, told = RememberedTab(), Told()
    with told.keeper(tab) as keeper:
        for _ in range(3):
            keeper.tell()
        wait_for("the first text", lambda: tab.shown, every=0.005)
        told.version = 1
        keeper.tell()
        wait_for("the next text", lambda: tab.shown[-1] == "v1", every=0.005)
        shown = len(tab.shown)
        for _ in range(100):
            keeper.tell()
    assert len(tab.shown) == shown and tab.closed


def test_a_tab_that_hangs_holds_up_nobody() -> None:
    tab, told = RememberedTab(), Told()
    tab.may_show.clear()
    with told.keeper(tab) as keeper:
        keeper.tell()
        told.version = 1
        keeper.tell()
        assert tab.shown == []
        tab.may_show.set()
        wait_for("the text", lambda: tab.shown[-1:] == ["v1"], every=0.005)


@pytest.mark.parametrize("error", [Unsupported("the Spark UI is off"), SparkUnavailable("gone")])
def test_it_steps_aside_with_a_line_for_those_who_debug(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> UIPart:
        raise error

    with caplog.at_level(logging.DEBUG), PartKeeper("app-1", "tab", fail, lambda: "", lambda: "1") as keeper:
        keeper.tell()
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
    assert str(error) in caplog.text


@pytest.mark.parametrize(
    ("conf", "served"),
    [
        ({}, True),
        ({"spark.ui.prometheus.enabled": "TRUE"}, True),
        ({"spark.ui.prometheus.enabled": "false"}, False),
        (
            {
                "spark.ui.prometheus.enabled": "false",
                "spark.metrics.conf.*.sink.p.class": "org.apache.spark.metrics.sink.PrometheusServlet",
            },
            True,
        ),
        (
            {
                "spark.ui.prometheus.enabled": "false",
                "spark.metrics.conf.*.sink.s.class": "org.apache.spark.metrics.sink.StatsdSink",
            },
            False,
        ),
    ],
)
def test_metrics_are_where_spark_has_its_own(conf: dict[str, str], served: bool) -> None:
    assert serves_prometheus(conf) is served
