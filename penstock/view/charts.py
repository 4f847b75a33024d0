"""The common parts of charts: colours, look, hover text, lines over time, the critical path by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from itertools import pairwise
from statistics import median
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from penstock.view import figures
from penstock.view.colours import CAUSE_COLOURS, GREY
from penstock.view.words import name_cause

LOOK: dict[str, Any] = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "size": 13},
    "template": "none",
}
"""The layout of every chart; the page's script adds the colours of light and dark."""
DASHED = {"color": GREY, "width": 1.5, "dash": "dash"}
CRITICAL_HEIGHT = 250
SMALLEST_SHARE = 0.005
WIDEST_BAR_SECONDS = 60.0

Points = Sequence[Mapping[str, Any]]


def place_legend(y: float = 1.0) -> dict[str, Any]:
    """Place a legend in one row above a chart, to the right."""
    return {"orientation": "h", "x": 1, "xanchor": "right", "y": y, "yanchor": "bottom"}


def local_time(point: Mapping[str, Any]) -> datetime:
    """Return the local time of a point."""
    return datetime.fromtimestamp(point["at"])


def escape_hover(text: str) -> str:
    """Escape the few tags that Plotly reads in hover text: a reason must not become one."""
    return escape(text, quote=False)


def wrap_hover(text: str) -> list[str]:
    """Escape a text and break it into lines, because hover boxes do not wrap."""
    return wrap(escape_hover(text), 70, break_long_words=False, break_on_hyphens=False)


def make_timelines(titles: Sequence[str], spacing: float = 0.065, **more: Any) -> go.Figure:
    """Make empty charts above one another that share their axis of time."""
    figure = make_subplots(
        rows=len(titles), cols=1, shared_xaxes=True, vertical_spacing=spacing, subplot_titles=titles, **more
    )
    for title in figure.layout.annotations:
        title.update(x=0, xanchor="left", font={"size": 15}, text=f"<b>{title.text}</b>")
    return figure


def dress_timelines(figure: go.Figure, units: Sequence[str], time: str, **layout: Any) -> None:
    """Give timelines their look: a unit on each axis, the time below the last one."""
    figure.update_layout(**LOOK, hovermode="x unified", **layout)
    for row, unit in enumerate(units, start=1):
        figure.update_yaxes(title_text=unit, rangemode="tozero", zeroline=False, row=row, col=1)
    figure.update_xaxes(showgrid=False, ticks="outside", ticklen=4)
    figure.update_xaxes(title_text=time, row=len(units), col=1)


def add_line(
    figure: go.Figure,
    row: int,
    name: str,
    at: Sequence[Any],
    values: Sequence[float | None],
    hover: str,
    more: Mapping[str, Any],
    **look: Any,
) -> None:
    """Add a line to one of the timelines; `hover` says how a value reads, with its unit."""
    template = f"{escape_hover(name)} {hover}<extra></extra>"
    line = {"width": 2, **look}
    drawn = go.Scatter(x=at, y=values, name=name, mode="lines", line=line, hovertemplate=template, **more)
    figure.add_trace(drawn, row=row, col=1)


def add_markers(
    figure: go.Figure,
    row: int,
    at: Sequence[Any],
    values: Sequence[float],
    told: Sequence[str],
    marker: Mapping[str, Any],
    **more: Any,
) -> None:
    """Add points to one of the timelines, each with what hovering over it tells."""
    template = "%{hovertext}<extra></extra>"
    points = go.Scatter(
        x=at, y=values, mode="markers", marker=marker, hovertext=told, hovertemplate=template, **more
    )
    figure.add_trace(points, row=row, col=1)


def list_analysed(queries: Points) -> list[Mapping[str, Any]]:
    """List the queries that have analysed batches."""
    return [query for query in queries if query.get("critical_windows")]


def draw_critical_path(queries: Points, recent: Points = (), word: str = "batch") -> go.Figure:
    """Draw a bar for each analysed batch, as high as the batch was long, stacked by what it waited for.

    The axis of time is that of the recent points, so that the charts above it can be compared.
    """
    shown = list_analysed(queries)
    figure = make_timelines([escape_hover(str(query["name"])) for query in shown], 0.12 / len(shown))
    drawn: set[str] = set()
    for row, query in enumerate(shown, start=1):
        windows = query["critical_windows"]
        _add_causes(figure, row, windows, drawn)
        _add_answers(figure, row, windows, word)
        if query.get("period_seconds"):
            text = f"trigger {figures.seconds(query['period_seconds'])}"
            figure.add_hline(y=query["period_seconds"], line=DASHED, annotation_text=text, row=row, col=1)
    height = CRITICAL_HEIGHT * len(shown) + 110
    margin = {"l": 70, "r": 24, "t": 48, "b": 44}
    layout = {"barmode": "stack", "height": height, "margin": margin, "legend": place_legend()}
    dress_timelines(figure, ["seconds"] * len(shown), "local time", **layout)
    if len(recent) > 1:
        figure.update_xaxes(range=[local_time(recent[0]), local_time(recent[-1])])
    return figure


def list_causes(windows: Points) -> list[str]:
    """List the causes that can be seen in these windows, the one with most seconds first."""
    seconds: dict[str, float] = {}
    for window in windows:
        for cause, share in window["causes"].items():
            seconds[cause] = seconds.get(cause, 0.0) + share * window["seconds"]
    least = SMALLEST_SHARE * sum(seconds.values())
    return sorted((cause for cause in seconds if seconds[cause] >= least), key=lambda one: -seconds[one])


def _add_causes(figure: go.Figure, row: int, windows: Points, drawn: set[str]) -> None:
    """Add the bars of one query; a cause that another query has drawn is in the legend already."""
    for cause in list_causes(windows):
        shares = [window["causes"].get(cause, 0.0) for window in windows]
        bar = go.Bar(
            x=[local_time(window) for window in windows],
            y=[share * window["seconds"] for share, window in zip(shares, windows, strict=True)],
            width=_bar_milliseconds(windows),
            name=name_cause(cause),
            legendgroup=cause,
            showlegend=cause not in drawn,
            marker={"color": CAUSE_COLOURS.get(cause, GREY), "line": {"width": 0}},
            customdata=[figures.share(share) for share in shares],
            hovertemplate=f"{name_cause(cause)} %{{y:.2f}} s, %{{customdata}}<extra></extra>",
        )
        figure.add_trace(bar, row=row, col=1)
        drawn.add(cause)


def _add_answers(figure: go.Figure, row: int, windows: Points, word: str) -> None:
    """Add the answer in words, which hovering over a bar shows."""
    told = []
    for window in windows:
        heading = f"<b>{word} {window['batch_id']}</b>, {figures.seconds(window['seconds'])}"
        told.append("<br>".join([heading, *wrap_hover(str(window["answer"]))]))
    at, heights = [local_time(window) for window in windows], [window["seconds"] for window in windows]
    add_markers(figure, row, at, heights, told, {"opacity": 0}, showlegend=False)


def _bar_milliseconds(windows: Points) -> float:
    """Return the width of a bar: most of the usual distance between two analysed batches."""
    times = [float(window["at"]) for window in windows]
    apart = [after - before for before, after in pairwise(times) if after > before]
    usual = median(apart) if apart else float(windows[-1]["seconds"])
    return 800.0 * min(usual, WIDEST_BAR_SECONDS)
