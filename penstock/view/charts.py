"""The charts of a run: rates, backlog, batch time and slots above one another, on one axis of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from penstock.view import figures
from penstock.view.words import change, decision_word, effect

TITLES = ("Rate", "Backlog", "Batch time", "Slots")
UNITS = ("records per second", "records", "seconds", "slots")
BLUE, GREEN, ORANGE, PURPLE, GREY = "#3b82c4", "#2a9d74", "#d9822b", "#8a6fc1", "#8b95a1"
CHANGES = {"scale-out": (GREEN, "triangle-up"), "scale-in": (BLUE, "triangle-down")}
OTHERS = {"move-state": (PURPLE, "diamond"), "rejected": (ORANGE, "x"), "failed": ("#c94f4f", "x")}

Points = Sequence[Mapping[str, Any]]


def timeline(recent: Points, decisions: Points) -> go.Figure:
    """One figure of four charts, with every change of size marked in all of them."""
    figure = make_subplots(
        rows=4,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.065,
        row_heights=[0.3, 0.2, 0.22, 0.28],
        subplot_titles=TITLES,
    )
    at = [moment(point) for point in recent]
    _rates(figure, at, recent)
    _backlog(figure, at, recent)
    _batch_time(figure, at, recent)
    _slots(figure, at, recent)
    _mark(figure, recent, decisions)
    _dress(figure)
    return figure


def moment(point: Mapping[str, Any]) -> datetime:
    """The local time of a point."""
    return datetime.fromtimestamp(point["at"])


def _column(recent: Points, key: str) -> list[float | None]:
    return [point.get(key) for point in recent]


def _line(name: str, color: str, hover: str, **more: Any) -> dict[str, Any]:
    line = {"color": color, "width": 2, **more.pop("line", {})}
    return {"name": name, "mode": "lines", "line": line, "hovertemplate": hover + "<extra></extra>", **more}


def _rates(figure: go.Figure, at: list[datetime], recent: Points) -> None:
    for name, key, color, dash in (
        ("offered", "offered_per_second", BLUE, "dot"),
        ("observed", "observed_per_second", GREEN, "solid"),
    ):
        drawn = _line(name, color, f"{name} %{{y:,.0f}} records/s", line={"dash": dash}, legend="legend")
        figure.add_trace(go.Scatter(x=at, y=_column(recent, key), **drawn), row=1, col=1)


def _backlog(figure: go.Figure, at: list[datetime], recent: Points) -> None:
    drawn = _line("backlog", ORANGE, "backlog %{y:,.0f} records", legend="legend2")
    shade = {"fill": "tozeroy", "fillcolor": "rgba(217,130,43,0.16)"}
    figure.add_trace(go.Scatter(x=at, y=_column(recent, "backlog_records"), **drawn, **shade), row=2, col=1)


def _batch_time(figure: go.Figure, at: list[datetime], recent: Points) -> None:
    periods = _column(recent, "period_seconds")
    if any(period is not None for period in periods):
        drawn = _line("trigger", GREY, "trigger %{y:.1f} s", line={"dash": "dash", "width": 1.5})
        figure.add_trace(go.Scatter(x=at, y=periods, legend="legend3", **drawn), row=3, col=1)
    # a batch longer than a window leaves windows without one: the line goes on over them
    drawn = _line("batch", PURPLE, "batch %{y:.1f} s", legend="legend3", connectgaps=True)
    figure.add_trace(go.Scatter(x=at, y=_column(recent, "batch_seconds"), **drawn), row=3, col=1)


def _slots(figure: go.Figure, at: list[datetime], recent: Points) -> None:
    for name, key, color, dash in (
        ("held", "slots_held", BLUE, "solid"),
        ("needed", "slots_needed", ORANGE, "dot"),
    ):
        steps = {"dash": dash, "shape": "hv", "width": 2.5}
        drawn = _line(name, color, f"{name} %{{y:,.0f}} slots", line=steps, legend="legend4")
        figure.add_trace(go.Scatter(x=at, y=_column(recent, key), **drawn), row=4, col=1)


def _mark(figure: go.Figure, recent: Points, decisions: Points) -> None:
    """A thin line through all charts for each change, and a marker among the slots with the reason."""
    for one in decisions:
        if one.get("kind") in CHANGES:
            color = CHANGES[one["kind"]][0]
            figure.add_vline(x=moment(one), line={"color": color, "width": 1, "dash": "dot"}, opacity=0.7)
    for kind, (color, symbol) in {**CHANGES, **OTHERS}.items():
        marked = [one for one in decisions if one.get("kind") == kind]
        if marked:
            figure.add_trace(_markers(marked, recent, color, symbol), row=4, col=1)


def _markers(marked: Points, recent: Points, color: str, symbol: str) -> go.Scatter:
    return go.Scatter(
        x=[moment(one) for one in marked],
        y=[_held_at(recent, one["at"]) for one in marked],
        mode="markers",
        marker={"color": color, "symbol": symbol, "size": 12, "line": {"color": "#ffffff", "width": 1.5}},
        name=decision_word({"kind": marked[0].get("kind")}),
        legend="legend4",
        hovertext=[_hover(one) for one in marked],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _held_at(recent: Points, at: float) -> float:
    before = [point["slots_held"] for point in recent if point["at"] <= at and point.get("slots_held")]
    return float(before[-1]) if before else 0.0


def _hover(decision: Mapping[str, Any]) -> str:
    lines = [f"<b>{decision_word(decision)} {change(decision)}</b> at {figures.clock(decision['at'])}"]
    for text in (str(decision.get("reason", "")), effect(decision)):
        lines += wrapped(escape_hover(text))
    return "<br>".join(lines)


def escape_hover(text: str) -> str:
    """Plotly reads a few tags in hover text; a reason must not become one."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def wrapped(text: str, width: int = 70) -> list[str]:
    """The text in lines of at most so many characters, because hover boxes do not wrap."""
    lines, current = [], ""
    for word in text.split():
        if current and len(current) + len(word) >= width:
            lines.append(current)
            current = ""
        current = f"{current} {word}".strip()
    return [*lines, current] if current else lines


def _dress(figure: go.Figure) -> None:
    figure.update_layout(
        height=980,
        margin={"l": 70, "r": 24, "t": 40, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "size": 13},
        hovermode="x unified",
        template="none",
    )
    for row, unit in enumerate(UNITS, start=1):
        figure.update_yaxes(title_text=unit, rangemode="tozero", zeroline=False, row=row, col=1)
        axis = "yaxis" if row == 1 else f"yaxis{row}"
        top = figure.layout[axis].domain[1]
        place = {"orientation": "h", "x": 1, "xanchor": "right", "y": top, "yanchor": "bottom"}
        figure.update_layout({"legend" if row == 1 else f"legend{row}": place})
    figure.update_xaxes(showgrid=False, ticks="outside", ticklen=4)
    figure.update_xaxes(title_text="local time", row=4, col=1)
    for annotation in figure.layout.annotations:
        annotation.update(x=0, xanchor="left", font={"size": 15}, text=f"<b>{annotation.text}</b>")
