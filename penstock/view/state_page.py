"""One self-contained HTML page of where state lies: summary, heat map, executors; no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import orjson

from penstock.errors import ActionFailed
from penstock.view import figures
from penstock.view.html import installed_version
from penstock.view.page import STYLE, framed
from penstock.view.state import held_by, ranges, too_few_bins

CHART = "heat-map"

Plain = Mapping[str, Any]

SCRIPT = """
(function () {
  var root = document.documentElement, chart = document.getElementById("heat-map");
  var measures = $measures, buttons = document.querySelectorAll("[data-measure]");
  var system = window.matchMedia("(prefers-color-scheme: dark)");
  function paint() {
    if (!chart) { return; }
    var style = getComputedStyle(root), ink = style.getPropertyValue("--ink").trim();
    var rule = style.getPropertyValue("--rule").trim(), card = style.getPropertyValue("--card").trim();
    var change = {"font.color": ink, "hoverlabel.bgcolor": card, "hoverlabel.font.color": ink,
      "hoverlabel.bordercolor": rule};
    Object.keys(chart.layout).forEach(function (key) {
      if (/^[xy]axis/.test(key)) {
        change[key + ".linecolor"] = rule;
        change[key + ".tickcolor"] = rule;
      }
    });
    Plotly.relayout(chart, change);
  }
  function dress(dark) { root.dataset.theme = dark ? "dark" : "light"; paint(); }
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
  document.getElementById("theme").addEventListener("click", function () {
    dress(root.dataset.theme !== "dark");
  });
  system.addEventListener("change", function (event) { dress(event.matches); });
  dress(system.matches);
})();
"""

_STYLE = """
button[aria-pressed="true"] { color: var(--ink); border-color: var(--ink); }
.measures { display: flex; gap: 8px; align-items: center; margin-bottom: 8px; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.warning { color: var(--warn); }
"""
_BODY = """$warning
<section class="tiles">
$tiles
</section>
<section class="card">$chart</section>
$tables"""
PAGE = framed(_BODY, title="State of $title", style=_STYLE)


def page(state: Plain, application: str, name: str) -> str:
    """The page for one answer to `state`, as text."""
    obstacle = state.get("obstacle")
    measured: list[dict[str, Any]] = []
    chart = '<p class="quiet">No query holds state yet.</p>'
    if state["queries"]:
        chart, measured = _chart(state)
    return Template(PAGE).substitute(
        style=STYLE,
        title=escape(name or application),
        subtitle=escape(f"{application} · where its state lies"),
        warning=f'<p class="warning">{escape(str(obstacle))}</p>' if obstacle else "",
        tiles="\n".join(_tile(*one) for one in _summary(state)),
        chart=chart,
        tables="\n".join(_table(query, state["workers"]) for query in state["queries"]),
        version=escape(installed_version()),
        script=Template(SCRIPT).substitute(measures=_script_json(measured)),
    )


def write_page(state: Plain, application: str, name: str, path: Path) -> Path:
    """Write the page and return its absolute path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(state, application, name), encoding="utf-8")
    except OSError as error:
        raise ActionFailed(f"cannot write the page {path}: {error.strerror}") from error
    return path.resolve()


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
    config = {"displayModeBar": False, "responsive": True}
    drawn: str = heat_map(state).to_html(full_html=False, include_plotlyjs=True, div_id=CHART, config=config)
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


def _tile(label: str, value: str, note: str) -> str:
    parts = (("label", label), ("value", value), ("note", note))
    inside = "".join(f'<div class="{kind}">{escape(text)}</div>' for kind, text in parts)
    return f'<div class="tile">{inside}</div>'


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
