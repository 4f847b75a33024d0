"""The report over all claims as one HTML page that needs nothing from the network."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

from penstock.view.charts import escape_hover
from penstock.view.colours import COLOURS, GREY
from penstock.view.frame import charts_page, draw_chart, render_page, write_text
from penstock_lab.claims.claim import Chart, Claim, Figure, Verdict
from penstock_lab.report.counts import count_by_verdict, count_verdicts, list_failed, name_parts
from penstock_lab.report.runner import PartOutcome, PartStatus

TEMPLATES = "penstock_lab.report"
_THESIS = "Managing and understanding distributed stream processing, thesis, ETH Zurich 2019, chapter"
PAPERS = {
    "DS2": "Three steps is all you need: fast, accurate, automatic scaling decisions for distributed "
    "streaming dataflows, OSDI 2018",
    "Snailtrail": f"{_THESIS} 3, whose numbers figures and tables have here",
    "Megaphone": f"{_THESIS} 5, whose numbers figures have here",
    "AuTraScale": "AuTraScale: An Automated and Transfer Learning Solution for Streaming System Auto-Scaling",
    "Sage": "Auto-sizing for Stream Processing Applications at LinkedIn",
    "Elastic Pulsar Functions": "Elastic Pulsar Functions for Distributed Stream Processing, Auto-DaSP 2021",
}
"""The short name of a paper → its title."""
OFFERED = "offered"
"""The name of the series that shows the offered load: a dotted line in grey."""
_FONT = {"family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "size": 12}
_CLEAR = "rgba(0,0,0,0)"
_ROOM = {"l": 60, "r": 16, "t": 70, "b": 50}
_LEGEND_ROW = 3
"""Names that fit side by side above a chart; more of them stand beside it."""
_MOST_TICKS = 9


def write_page(outcomes: Sequence[PartOutcome], machine: str, date: str, path: Path) -> Path:
    """Write the page and return its absolute path."""
    return write_text(build_page(outcomes, machine, date), path)


def build_page(outcomes: Sequence[PartOutcome], machine: str, date: str) -> str:
    """Build the page; parts that were run elsewhere or on another day say so."""
    return render_page(
        "evidence.html.j2",
        title="Evidence",
        subtitle=f"{machine} · written on {date} · {_describe_runs(outcomes)}",
        package=TEMPLATES,
        figures=_list_figures(outcomes),
        failures=_show_failures(outcomes),
        shown=[_show_part(outcome, machine, date) for outcome in outcomes],
        papers={name: title for name, title in PAPERS.items() if any(name in one.shows for one in outcomes)},
    )


def write_charts(title: str, subtitle: str, charts: Sequence[Chart], path: Path) -> Path:
    """Write charts alone as a page and return its absolute path."""
    cards = Markup("").join(
        Markup('<section class="card">{}</section>').format(plot_chart(one)) for one in charts
    )
    return write_text(charts_page(title, subtitle, cards), path)


def _describe_runs(outcomes: Sequence[PartOutcome]) -> str:
    quick = sum(outcome.quick for outcome in outcomes)
    if not quick:
        return "full run"
    whole = "quick run" if quick == len(outcomes) else f"{quick} of {len(outcomes)} parts from a quick run"
    return f"{whole}: shorter, and rougher figures"


def _list_figures(outcomes: Sequence[PartOutcome]) -> list[tuple[str, str, str]]:
    statuses = Counter(outcome.status for outcome in outcomes)
    claims = [(one.value, str(count), "claims") for one, count in count_by_verdict(outcomes).items()]
    return [*claims, *((status.value, str(count), name_parts(count)) for status, count in statuses.items())]


def _show_failures(outcomes: Sequence[PartOutcome]) -> list[dict[str, str]]:
    """Return what the template shows first: parts that failed, then results that did."""
    broken = [
        {"part": one.name, "claim": one.title, "result": "", "beside": "", "ours": one.reason}
        | {"verdict": one.status.value, "why": "", "conditions": ""}
        for one in outcomes
        if one.status is PartStatus.FAILED
    ]
    return broken + [
        {
            "part": outcome.name,
            "claim": claim.figure or "target of Penstock",
            "result": claim.name,
            "beside": format_figure(claim.target if claim.published is None else claim.published),
            "ours": format_figure(claim.measured),
            "verdict": claim.verdict.value,
            "why": claim.why,
            "conditions": claim.conditions,
        }
        for outcome, claim in list_failed(outcomes)
    ]


def _show_part(outcome: PartOutcome, machine: str, date: str) -> dict[str, Any]:
    """Return what the template shows of a part."""
    claims, status = outcome.result.claims, outcome.status.value
    shown = [claim for claim in claims if claim.verdict is Verdict.ILLUSTRATION]
    targets = [claim for claim in claims if claim.target and claim.published is None]
    held = [claim for claim in claims if claim not in targets and claim not in shown]
    return {
        "name": outcome.name,
        "title": outcome.title,
        "shows": outcome.shows,
        "status": status,
        "results": count_verdicts([outcome]) if claims else outcome.reason,
        "taken": _describe_run(outcome, machine, date),
        "failure": "" if outcome.status is PartStatus.DONE else f"{status}: {outcome.reason}",
        "tables": [
            _show_table(some, beside) for some, beside in ((held, "published"), (targets, "target")) if some
        ],
        "illustrations": _show_table(shown, "published") if shown else None,
        "charts": [plot_chart(chart) for chart in outcome.result.charts],
        "notes": outcome.result.notes,
    }


def _show_table(claims: Sequence[Claim], beside: str) -> dict[str, Any]:
    """Return what the template shows of claims; shared conditions stand above, empty columns are left out."""
    conditions = {claim.conditions for claim in claims}
    shared = conditions.pop() if len(conditions) == 1 else ""
    apart = bool(conditions) and not shared
    baseline = any(claim.baseline is not None for claim in claims)
    rows = []
    for claim in claims:
        figures = [claim.target if beside == "target" else claim.published, claim.measured]
        name = f"{claim.figure}: {claim.name}" if claim.figure else claim.name
        cells = [name, *map(format_figure, [*figures, *([claim.baseline] if baseline else [])])]
        row = {"cells": cells, "verdict": claim.verdict.value, "why": claim.why}
        rows.append({**row, "conditions": claim.conditions if apart else ""})
    more = ["conditions"] if apart else []
    columns = ["result", beside, "ours", *(["baseline"] if baseline else []), "verdict", *more]
    return {"conditions": shared, "columns": columns, "rows": rows}


def _describe_run(outcome: PartOutcome, machine: str, date: str) -> str:
    """Tell how long the part ran, and when and where unless here and today."""
    if outcome.status in (PartStatus.MISSING, PartStatus.LEFT):
        return ""
    kind = "quick run" if outcome.quick else "full run"
    told = f" · {kind}, {f'{outcome.seconds:.0f} s' if outcome.seconds >= 1 else 'less than 1 s'}"
    told += f" · run on {outcome.date}" if outcome.date not in ("", date) else ""
    return told + (f" · {outcome.machine}" if outcome.machine not in ("", machine) else "")


def format_figure(value: Figure) -> str:
    """Format a figure for a reader."""
    if value is None or isinstance(value, str):
        return "–" if value is None else value
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"


def plot_chart(chart: Chart) -> Markup:
    """Draw one chart as a piece of HTML; the page brings Plotly itself."""
    figure = go.Figure()
    for number, (name, x, y) in enumerate(chart.series):
        colour = GREY if name == OFFERED else COLOURS[number % len(COLOURS)]
        figure.add_trace(_draw_series(chart, name, list(x), list(y), colour))
    _lay_out(figure, chart)
    return draw_chart(figure)


def _draw_series(
    chart: Chart, name: str, x: list[float | str], y: list[float | None], colour: str
) -> go.Bar | go.Box | go.Scatter:
    hover = f"{escape_hover(name)}: %{{y:,.4g}}<extra></extra>"
    if chart.boxes:
        return go.Box(name=name, y=y, marker={"color": colour}, boxpoints="all", hovertemplate=hover)
    if chart.bars:
        return go.Bar(name=name, x=x, y=y, marker={"color": colour}, hovertemplate=hover)
    line = {"shape": "hv" if chart.steps else "linear", "color": colour, "width": 2}
    if name == OFFERED:
        line["dash"] = "dot"
    mode = "lines+markers" if chart.points else "lines"
    return go.Scatter(name=name, x=x, y=y, mode=mode, line=line, hovertemplate=hover)


def _lay_out(figure: go.Figure, chart: Chart) -> None:
    above = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
    figure.update_layout(
        title={"text": f"<b>{escape_hover(chart.title)}</b>", "x": 0.02, "font": {"size": 13.5}},
        height=360,
        margin=_ROOM,
        paper_bgcolor=_CLEAR,
        plot_bgcolor=_CLEAR,
        font=_FONT,
        template="none",
        # boxes have their names below them
        showlegend=not chart.boxes,
        legend=above if len(chart.series) <= _LEGEND_ROW else {},
    )
    figure.update_xaxes(
        title_text=chart.x, showgrid=False, ticks="outside", ticklen=4, zeroline=False, automargin=True
    )
    figure.update_yaxes(title_text=chart.y, title_standoff=8, zeroline=False, automargin=True)
    if any(isinstance(value, str) for _, x, _ in chart.series for value in x):
        # names such as 20% would be read as numbers otherwise
        figure.update_xaxes(type="category")
    if _has_few_steps(chart):
        # there is no half a step
        figure.update_xaxes(dtick=1)
    if "x" in chart.logarithmic:
        figure.update_xaxes(type="log", **_label_values(chart))
    if "y" in chart.logarithmic:
        figure.update_yaxes(type="log", **_span_decades(chart))
    elif not chart.boxes:
        figure.update_yaxes(rangemode="tozero")


def _has_few_steps(chart: Chart) -> bool:
    values = {value for _, x, _ in chart.series for value in x}
    numbers = [value for value in values if isinstance(value, int | float)]
    few = 1 < len(numbers) == len(values) and max(numbers) - min(numbers) <= _MOST_TICKS
    return few and all(float(value).is_integer() for value in numbers)


def _span_decades(chart: Chart) -> dict[str, list[float]]:
    """Span whole powers of ten: within less than one, batches that hardly differ look like stalls."""
    values = [value for _, _, y in chart.series for value in y if value is not None and value > 0]
    if not values:
        return {}
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return {"range": [low, max(high, low + 1)]}


def _label_values(chart: Chart) -> dict[str, list[Any]]:
    """Label the values themselves where they are few and far apart: 2,500 is clearer than a 2 beside 1k."""
    values = sorted({value for _, x, _ in chart.series for value in x if isinstance(value, int | float)})
    if not 2 <= len(values) <= _MOST_TICKS or any(after < 1.5 * before for before, after in pairwise(values)):
        return {}
    return {"tickvals": values, "ticktext": [f"{value:,.6g}" for value in values]}
