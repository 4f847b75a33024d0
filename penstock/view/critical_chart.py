"""What batches waited for: their critical path by cause, in seconds, one chart a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from penstock.view import figures
from penstock.view.charts import GREY, escape_hover, moment, wrapped
from penstock.view.words import cause_word

# Tasks are green, blue and purple, the driver is warm, waiting is grey: warm batches need no executors.
COLORS = {
    "run": "#2a9d74",
    "gc": "#7cc4a4",
    "deserialise": "#9fd3c7",
    "fetch": "#3b82c4",
    "shuffle write": "#7fb0df",
    "state load": "#8a6fc1",
    "state commit": "#b39ddb",
    "result": "#5c9ead",
    "scheduling": "#d9822b",
    "batch log": "#e9b44c",
    "program": "#c94f4f",
    "start-up": "#d88c8c",
    "executors": "#a1887f",
    "trigger": "#c3cad2",
    "unknown": "#8b95a1",
}
ROW_HEIGHT = 250
SMALLEST_SHARE = 0.005
WIDEST_BAR_SECONDS = 60.0

Query = Mapping[str, Any]
Windows = Sequence[Mapping[str, Any]]


def analysed(queries: Sequence[Query]) -> list[Query]:
    """The queries of which batches were analysed."""
    return [query for query in queries if query.get("critical_windows")]


def critical_path(queries: Sequence[Query], recent: Windows = (), word: str = "batch") -> go.Figure:
    """A bar for each analysed batch, as high as the batch was long, stacked by what it waited for.

    The axis of time is that of the recent points, so that the charts above it can be compared.
    """
    shown = analysed(queries)
    figure = make_subplots(
        rows=len(shown),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.12 / len(shown),
        subplot_titles=[f"<b>{escape_hover(str(query['name']))}</b>" for query in shown],
    )
    drawn: set[str] = set()
    for row, query in enumerate(shown, start=1):
        _bars(figure, row, query["critical_windows"], drawn, word)
        _trigger(figure, row, query)
    _dress(figure, len(shown))
    if len(recent) > 1:
        figure.update_xaxes(range=[moment(recent[0]), moment(recent[-1])])
    return figure


def causes_by_size(windows: Windows) -> list[str]:
    """The causes of these windows that can be seen, the one with most seconds first."""
    seconds: dict[str, float] = {}
    for window in windows:
        for cause, share in window["causes"].items():
            seconds[cause] = seconds.get(cause, 0.0) + share * window["seconds"]
    total = sum(seconds.values())
    seen = [cause for cause in seconds if seconds[cause] >= SMALLEST_SHARE * total]
    return sorted(seen, key=lambda cause: -seconds[cause])


def _bars(figure: go.Figure, row: int, windows: Windows, drawn: set[str], word: str) -> None:
    at = [moment(window) for window in windows]
    width = _width(windows)
    for cause in causes_by_size(windows):
        shares = [window["causes"].get(cause, 0.0) for window in windows]
        bar = go.Bar(
            x=at,
            y=[share * window["seconds"] for share, window in zip(shares, windows, strict=True)],
            width=width,
            name=cause_word(cause),
            legendgroup=cause,
            showlegend=cause not in drawn,
            marker={"color": COLORS.get(cause, GREY), "line": {"width": 0}},
            customdata=[figures.share(share) for share in shares],
            hovertemplate=f"{cause_word(cause)} %{{y:.2f}} s, %{{customdata}}<extra></extra>",
        )
        figure.add_trace(bar, row=row, col=1)
        drawn.add(cause)
    figure.add_trace(_said(at, windows, word), row=row, col=1)


def _said(at: list[datetime], windows: Windows, word: str) -> go.Scatter:
    """The answer in words, which hovering over a bar shows."""
    return go.Scatter(
        x=at,
        y=[window["seconds"] for window in windows],
        mode="markers",
        marker={"opacity": 0},
        showlegend=False,
        hovertext=[_words(window, word) for window in windows],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _words(window: Mapping[str, Any], word: str) -> str:
    lines = [f"<b>{word} {window['batch_id']}</b>, {figures.seconds(window['seconds'])}"]
    return "<br>".join([*lines, *wrapped(escape_hover(str(window["answer"])))])


def _width(windows: Windows) -> float:
    """Milliseconds of a bar: most of the usual distance between two analysed batches."""
    times = [float(window["at"]) for window in windows]
    apart = [after - before for before, after in pairwise(times) if after > before]
    usual = median(apart) if apart else float(windows[-1]["seconds"])
    return 800.0 * min(usual, WIDEST_BAR_SECONDS)


def _trigger(figure: go.Figure, row: int, query: Query) -> None:
    if query.get("period_seconds"):
        line = {"color": GREY, "width": 1.5, "dash": "dash"}
        text = f"trigger {figures.seconds(query['period_seconds'])}"
        figure.add_hline(y=query["period_seconds"], line=line, annotation_text=text, row=row, col=1)


def _dress(figure: go.Figure, rows: int) -> None:
    figure.update_layout(
        barmode="stack",
        height=ROW_HEIGHT * rows + 110,
        margin={"l": 70, "r": 24, "t": 48, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "size": 13},
        hovermode="x unified",
        template="none",
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"},
    )
    figure.update_yaxes(title_text="seconds", rangemode="tozero", zeroline=False)
    figure.update_xaxes(showgrid=False, ticks="outside", ticklen=4)
    figure.update_xaxes(title_text="local time", row=rows, col=1)
    for annotation in figure.layout.annotations[:rows]:
        annotation.update(x=0, xanchor="left", font={"size": 15})
