"""A part's charts as Plotly draws them, of the same shape as the papers'."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

from penstock.evidence.findings import Chart
from penstock.simulate.page import COLOURS
from penstock.view.charts import GREY, escape_hover
from penstock.view.page import CHART_CONFIG

OFFERED = "offered"
"""What is asked for, not what was done: a dotted line in grey."""
_FONT = {"family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "size": 12}
_CLEAR = "rgba(0,0,0,0)"
_ROOM = {"l": 60, "r": 16, "t": 70, "b": 50}
_LEGEND_ROW = 3
"""Names that fit above a chart side by side; more of them stand beside it."""
_MOST_TICKS = 9


def drawn(chart: Chart) -> str:
    """One chart as a piece of HTML; the page brings Plotly itself."""
    figure = go.Figure()
    for number, (name, x, y) in enumerate(chart.series):
        colour = GREY if name == OFFERED else COLOURS[number % len(COLOURS)]
        figure.add_trace(_trace(chart, name, list(x), list(y), colour))
    _dress(figure, chart)
    text: str = figure.to_html(full_html=False, include_plotlyjs=False, config=CHART_CONFIG)
    return text


def _trace(
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


def _dress(figure: go.Figure, chart: Chart) -> None:
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
    if _few_whole(chart):
        # there is no half a step
        figure.update_xaxes(dtick=1)
    if "x" in chart.logarithmic:
        figure.update_xaxes(type="log", **_few_ticks(chart))
    if "y" in chart.logarithmic:
        figure.update_yaxes(type="log", **_whole_decades(chart))
    elif not chart.boxes:
        figure.update_yaxes(rangemode="tozero")


def _few_whole(chart: Chart) -> bool:
    values = {value for _, x, _ in chart.series for value in x}
    numbers = [value for value in values if isinstance(value, int | float)]
    few = 1 < len(numbers) == len(values) and max(numbers) - min(numbers) <= _MOST_TICKS
    return few and all(float(value).is_integer() for value in numbers)


def _whole_decades(chart: Chart) -> dict[str, list[float]]:
    """From one power of ten to another: in a part of one, batches that hardly differ look like stalls."""
    values = [value for _, _, y in chart.series for value in y if value is not None and value > 0]
    if not values:
        return {}
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return {"range": [low, max(high, low + 1)]}


def _few_ticks(chart: Chart) -> dict[str, list[Any]]:
    """The values themselves where they are few and far apart: 2,500 says more than a 2 and a 3 beside 1k."""
    values = sorted({value for _, x, _ in chart.series for value in x if isinstance(value, int | float)})
    if not 2 <= len(values) <= _MOST_TICKS or any(after < 1.5 * before for before, after in pairwise(values)):
        return {}
    return {"tickvals": values, "ticktext": [f"{value:,.6g}" for value in values]}
