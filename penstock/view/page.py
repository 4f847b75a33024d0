"""The frame of all HTML pages: markup, style, the script that follows light and dark, and their writing."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from penstock.errors import ActionFailed

CHART_CONFIG: dict[str, Any] = {"displayModeBar": False, "responsive": True}

_STYLE = """
:root { color-scheme: light dark; --ground: #f6f7f9; --card: #ffffff; --ink: #1d2733; --quiet: #66727f;
  --rule: #e1e5ea; --out: #2a9d74; --in: #3b82c4; --warn: #d9822b; --bad: #c94f4f;
  --moved: #8a6fc1; }
:root[data-theme="dark"] { --ground: #12161b; --card: #1a2027; --ink: #e4e9ee; --quiet: #94a0ad;
  --rule: #2c343d; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 20px 48px; }
header { display: flex; justify-content: space-between; align-items: flex-start; gap: 16px; }
h1 { margin: 0; font-size: 26px; letter-spacing: -0.01em; }
h2 { margin: 32px 0 12px; font-size: 17px; }
.quiet, footer { color: var(--quiet); }
header p { margin: 4px 0 0; color: var(--quiet); }
button { border: 1px solid var(--rule); background: var(--card); color: var(--quiet); border-radius: 8px;
  padding: 6px 12px; font: inherit; font-size: 13px; cursor: pointer; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px;
  margin: 24px 0; }
.tile, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 12px; }
.tile { padding: 14px 16px; }
.tile .label, .tile .note { color: var(--quiet); font-size: 13px; }
.tile .value { font-size: 25px; font-weight: 600; letter-spacing: -0.02em;
  font-variant-numeric: tabular-nums; }
.card { padding: 16px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--quiet); font-weight: 500; padding: 6px 12px 8px 0;
  border-bottom: 1px solid var(--rule); }
td { padding: 8px 12px 8px 0; vertical-align: top; border-bottom: 1px solid var(--rule); }
tr:last-child td { border-bottom: 0; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 12px;
  align-items: start; }
.charts > .card { min-width: 0; }
.time, .change { white-space: nowrap; font-variant-numeric: tabular-nums; }
.badge { display: inline-block; white-space: nowrap; padding: 0 9px; border-radius: 10px; font-size: 13px;
  border: 1px solid currentColor; color: var(--quiet); }
tr.scale-out .badge { color: var(--out); } tr.scale-in .badge { color: var(--in); }
tr.move-state .badge { color: var(--moved); }
tr.rejected .badge { color: var(--warn); } tr.failed .badge { color: var(--bad); }
tr.hold td, tr.wait td { color: var(--quiet); }
footer { margin-top: 28px; font-size: 13px; }
"""

_SCRIPT = """
(function () {
  var root = document.documentElement, charts = document.querySelectorAll(".plotly-graph-div");
  var system = window.matchMedia("(prefers-color-scheme: dark)");
  function paint() {
    var style = getComputedStyle(root), ink = style.getPropertyValue("--ink").trim();
    var rule = style.getPropertyValue("--rule").trim(), card = style.getPropertyValue("--card").trim();
    var change = {"font.color": ink, "hoverlabel.bgcolor": card, "hoverlabel.font.color": ink,
      "hoverlabel.bordercolor": rule};
    charts.forEach(function (chart) {
      var mine = Object.assign({}, change);
      Object.keys(chart.layout).forEach(function (name) {
        if (name.startsWith("yaxis")) { mine[name + ".gridcolor"] = rule; }
        if (/^[xy]axis/.test(name)) { mine[name + ".linecolor"] = mine[name + ".tickcolor"] = rule; }
      });
      Plotly.relayout(chart, mine);
    });
  }
  function dress(dark) { root.dataset.theme = dark ? "dark" : "light"; paint(); }
  document.getElementById("theme").addEventListener("click", function () {
    dress(root.dataset.theme !== "dark");
  });
  system.addEventListener("change", function (event) { dress(event.matches); });
  dress(system.matches);
})();
"""


# A chart is drawn while the page is still read, when it may have the room of its neighbours.
_FIT = 'document.querySelectorAll(".plotly-graph-div").forEach(function (one) { Plotly.Plots.resize(one); });'
_FOOT = "Written by Penstock {version}. The page holds all that it shows and needs no network."

Figure = tuple[str, str, str]
"""What a tile shows: label, value, note; a note may be empty."""


def page_text(title: str, subtitle: str, body: str, style: str = "", script: str = "", tab: str = "") -> str:
    """A whole page around this body; title, subtitle and the browser's tab are taken as plain text."""
    return _page(title, subtitle, body, style, script, head="", tab=tab or title)


def charts_page(title: str, subtitle: str, body: str, style: str = "") -> str:
    """The same for a body with charts side by side, which all need the library in the head."""
    # plotly takes half a second to import: only pages need it
    from plotly.offline import get_plotlyjs

    head = f"<script>{get_plotlyjs()}</script>\n"
    return _page(title, subtitle, body, style, script=_FIT, head=head, tab=title)


def _page(title: str, subtitle: str, body: str, style: str, script: str, head: str, tab: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(tab)} · Penstock</title>
<style>{_STYLE}{style}</style>
{head}</head>
<body>
<main>
<header>
<div><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></div>
<button id="theme" type="button">light / dark</button>
</header>
{body}
<footer>{_FOOT.format(version=escape(_version()))}</footer>
</main>
<script>{_SCRIPT}{script}</script>
</body>
</html>
"""


def tiles(shown: Iterable[Figure]) -> str:
    """The few figures that tell most, side by side."""
    return f'<section class="tiles">\n{"".join(_tile(*one) for one in shown)}</section>'


def timeline_body(figures: Iterable[Figure], charts: str, decisions: str, between: str = "") -> str:
    """What pages of a run have in common: its figures, charts over time, and the decisions."""
    return f"""{tiles(figures)}
<section class="card">{charts}</section>
{between}
<h2>Decisions</h2>
<section class="card">
{decisions}
</section>"""


def write_text(text: str, path: Path) -> Path:
    """Write a page and return its absolute path; raises ActionFailed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ActionFailed(f"cannot write the page {path}: {error.strerror}") from error
    return path.resolve()


def _tile(label: str, value: str, note: str) -> str:
    parts = [("label", label), ("value", value), *([("note", note)] if note else [])]
    inside = "".join(f'<div class="{kind}">{escape(text)}</div>' for kind, text in parts)
    return f'<div class="tile">{inside}</div>\n'


def _version() -> str:
    """The version of the installed package; empty where it is not installed."""
    try:
        return version("penstock")
    except PackageNotFoundError:
        return ""
