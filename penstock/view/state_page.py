"""One self-contained HTML page of where state lies: summary, heat map, executors; no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import orjson

from penstock.view import figures
from penstock.view.page import CHART_CONFIG, page_text, tiles, write_text
from penstock.view.state import held_by, ranges, too_few_bins

CHART = "heat-map"

Plain = Mapping[str, Any]

_SCRIPT = """
(function () {
  var chart = document.getElementById("heat-map"), measures = $measures;
  var buttons = document.querySelectorAll("[data-measure]");
  function show(number) {
    var maps = [];
    chart.data.forEach(function (trace, index) { if (trace.type === "heatmap") { maps.push(index); } });
    Plotly.restyle(chart, {z: measures[number].cells}, maps);
    buttons.forEach(function (button) {
      button.setAttribute("aria-pressed", button.dataset.measure === String(number));
    });
  }
  buttons.forEach(function (button) {
    button.addEventListener("click", function () { show(Number(button.dataset.measure)); });
  });
})();
"""

_STYLE = """
button[aria-pressed="true"] { color: var(--ink); border-color: var(--ink); }
.measures { display: flex; gap: 8px; align-items: center; margin-bottom: 8px; }
.warning { color: var(--warn); }
"""


def page(state: Plain, application: str, name: str) -> str:
    """The page for one answer to `state`, as text."""
    obstacle = state.get("obstacle")
    measured: list[dict[str, Any]] = []
    chart = '<p class="quiet">No query holds state yet.</p>'
    if state["queries"]:
        chart, measured = _chart(state)
    warning = f'<p class="warning">{escape(str(obstacle))}</p>' if obstacle else ""
    tables = "\n".join(_table(query, state["workers"]) for query in state["queries"])
    title = name or application
    return page_text(
        title=title,
        tab=f"State of {title}",
        subtitle=f"{application} · where its state lies",
        body=f'{warning}{tiles(_summary(state))}\n<section class="card">{chart}</section>\n{tables}',
        style=_STYLE,
        script=Template(_SCRIPT).substitute(measures=_script_json(measured)),
    )


def write_page(state: Plain, application: str, name: str, path: Path) -> Path:
    """Write the page and return its absolute path."""
    return write_text(page(state, application, name), path)


def _script_json(value: object) -> str:
    # a closing tag inside a script would end it
    return orjson.dumps(value).decode().replace("</", "<\\/")


def _chart(state: Plain) -> tuple[str, list[dict[str, Any]]]:
    # plotly takes half a second to import: only pages need it
    from penstock.view.state_chart import heat_map, measures

    measured = measures(state)
    buttons = "".join(
        f'<button type="button" data-measure="{number}" aria-pressed="{str(number == 0).lower()}">'
        f"{escape(one['name'])}</button>"
        for number, one in enumerate(measured)
    )
    figure = heat_map(state)
    drawn: str = figure.to_html(full_html=False, include_plotlyjs=True, div_id=CHART, config=CHART_CONFIG)
    return f'<div class="measures"><span class="quiet">colour:</span>{buttons}</div>{drawn}', measured


def _summary(state: Plain) -> list[tuple[str, str, str]]:
    bins = [one for query in state["queries"] for one in query["bins"]]
    worst = max((query["imbalance"] for query in state["queries"]), default=None)
    slots = sum(worker["slots"] for worker in state["workers"])
    return [
        ("queries", figures.count(len(state["queries"])), "with state"),
        ("bins", figures.count(len(bins)), f"on {len(state['workers'])} executors"),
        ("rows", figures.count(sum(one["rows"] for one in bins)), "in all"),
        ("state", figures.size(sum(one["bytes"] for one in bins)), "in all"),
        ("slots", figures.count(slots), "in all"),
        ("imbalance", figures.share(worst), "fullest executor over the mean"),
    ]


def _table(query: Plain, workers: Sequence[Plain]) -> str:
    """What each executor holds of one query."""
    names = (
        "executor",
        "host",
        "slots",
        "bins",
        "rows",
        "state",
        "load a batch",
        "load a slot",
        "partitions",
    )
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "\n".join(_row(one) for one in held_by(query, workers))
    title = escape(str(query.get("name") or query["query"]))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    said = "".join(f'<p class="warning">{escape(one)}</p>' for one in too_few_bins(query, workers))
    return f'<h2>{title}, after batch {query["batch"]}</h2>\n{said}<section class="card">{table}</section>'


def _row(held: Plain) -> str:
    operators = sorted({one["operator"] for one in held["bins"]})
    partitions = "; ".join(
        f"{operator}/{ranges(one['partition'] for one in held['bins'] if one['operator'] == operator)}"
        for operator in operators
    )
    cells = (
        held["worker"],
        held["host"],
        figures.count(held["slots"]),
        figures.count(len(held["bins"])),
        figures.count(held["rows"]),
        figures.size(held["bytes"]),
        figures.seconds(held["load_seconds"]),
        figures.seconds(held["load_per_slot"]),
        partitions,
    )
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"
