"""The HTML page: complete, without the network, with every text escaped."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from penstock.view.charts import draw_critical_path
from penstock.view.run_page import draw_timeline, render_run_page, sum_slot_seconds
from tests.view import made_up


class Reader(HTMLParser):
    """Collects tags, their addresses and names, and the text outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.shown: list[str] = []
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]
        self.names += [value or "" for name, value in attributes if name == "id"]

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] not in (["script"], ["style"]):
            self.shown.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


def test_the_page_shows_summary_charts_and_decisions_and_loads_nothing() -> None:
    reader = read(render_run_page(made_up.status()))
    assert reader.addresses == []
    assert "link" not in reader.tags
    shown = " ".join(reader.shown)
    for part in (
        "slot-hours",
        "17,500",
        "1 out, 1 in",
        "scale out",
        "counts needs 10 slots",
        "done in 6.2 s",
    ):
        assert part in shown


def test_names_and_reasons_are_escaped() -> None:
    spiky = "</script><script>alert(1)</script>"
    decisions = [made_up.decision(5, "scale-out", spiky, **{"from": 1, "to": 2})]
    page = render_run_page(made_up.status(name=spiky, application=spiky, decisions=decisions))
    assert spiky not in page
    assert "alert(1)" in page


def test_a_run_without_history_makes_a_page_too() -> None:
    empty = made_up.status(recent=[], decisions=[], queries=[], slots=None)
    assert "No decision was taken." in render_run_page(empty)


def test_gaps_in_the_history_are_no_obstacle() -> None:
    recent = [{"at": made_up.START}, {"at": made_up.START + 1, "slots_held": 2}]
    decisions = [made_up.decision(0, "scale-in", "early", **{"from": None, "to": 1})]
    assert "early" in render_run_page(made_up.status(recent=recent, decisions=decisions))


def test_slots_are_steps_and_changes_are_marked_with_their_reason() -> None:
    figure = draw_timeline(made_up.status()["recent"], made_up.status()["decisions"])
    traces = {trace.name: trace for trace in figure.data}
    assert traces["held"].line.shape == traces["needed"].line.shape == "hv"
    assert "counts needs 10 slots" in traces["scale out"].hovertext[0]
    assert "&lt;b&gt;10&lt;/b&gt;" in traces["scale in"].hovertext[0]
    assert {axis.title.text for axis in figure.select_yaxes()} == {
        "records per second",
        "records",
        "seconds",
        "slots",
    }
    # a line through each of the four charts for each of the two changes
    assert len(figure.layout.shapes) == 8


def test_the_page_shows_what_batches_waited_for() -> None:
    queries = made_up.status()["queries"]
    page = render_run_page(made_up.status())
    assert "What batches waited for" in page
    assert "Most is count &lt;by&gt; word." in page
    figure = draw_critical_path([*queries, {"name": "idle", "critical_windows": []}])
    bars = {trace.name: trace for trace in figure.data if trace.type == "bar"}
    # one colour and one entry in the legend for each cause, the largest first
    assert list(bars) == [
        "run of tasks",
        "shuffle fetch",
        "driver's scheduling",
        "offsets and logs",
        "garbage collection",
    ]
    heights = [sum(bar.y[place] for bar in bars.values()) for place in range(24)]
    assert heights == pytest.approx([window["seconds"] for window in queries[0]["critical_windows"]])
    assert len({bar.marker.color for bar in bars.values()}) == len(bars)
    (hover,) = (trace.hovertext[0] for trace in figure.data if trace.type == "scatter")
    assert "<b>batch 0</b>" in hover and "count &lt;by&gt;" in hover


def test_each_query_has_a_chart_of_its_own_and_one_legend() -> None:
    (query,) = made_up.status()["queries"]
    other = {
        **query,
        "name": "other",
        "critical_windows": query["critical_windows"][:1],
        "period_seconds": None,
    }
    figure = draw_critical_path([query, other])
    named = [trace.name for trace in figure.data if trace.type == "bar" and trace.showlegend]
    assert len(named) == len(set(named)) == 5
    assert {trace.yaxis for trace in figure.data} == {"y", "y2"}


def test_a_page_without_analysed_batches_says_nothing_of_them() -> None:
    queries = [{**query, "critical_windows": []} for query in made_up.status()["queries"]]
    assert "waited for" not in render_run_page(made_up.status(queries=queries))


def test_slot_seconds_count_each_size_until_the_next_point() -> None:
    points = [{"at": 0.0, "slots_held": 4}, {"at": 10.0, "slots_held": None}, {"at": 15.0, "slots_held": 9}]
    assert sum_slot_seconds(points) == 40.0
    assert sum_slot_seconds([]) == 0.0
