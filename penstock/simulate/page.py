"""One self-contained HTML page of a comparison: all timelines on one axis, the figures, every action."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from penstock.dataflow.metrics import Floats
from penstock.simulate.comparison import EXPLAINED, HEADINGS, Comparison, changed, figures_of, passed
from penstock.simulate.run import Run
from penstock.simulate.virtual import BACKLOG, LATENCY, QUEUED, READ
from penstock.view import figures
from penstock.view.charts import BLUE, GREEN, GREY, ORANGE, PURPLE, escape_hover
from penstock.view.page import CHART_CONFIG, page_text, timeline_body, write_text

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, "#c94f4f", "#4aa3a2", "#b0762f", "#6d7bd0")
TITLES = ("Rate", "Waiting records, outside and inside", "Latency", "Slots")
UNITS = ("records per second", "records", "seconds", "slots")
MOST_POINTS = 1500
"""Points of one line; a day has 86,400 seconds, and a screen two thousand dots."""


def write_page(comparison: Comparison, path: Path) -> Path:
    """Write the page and return its absolute path."""
    return write_text(page(comparison), path)


def page(comparison: Comparison) -> str:
    """The page as text."""
    drawn = timelines(comparison)
    chart = drawn.to_html(full_html=False, include_plotlyjs=True, div_id="timeline", config=CHART_CONFIG)
    steps = [(run.policy, _steps(measures.steps), "") for run, measures in comparison.runs]
    tables = _figures_table(comparison) + "".join(_actions_table(run) for run, _ in comparison.runs)
    lasts = figures.seconds(comparison.experiment.seconds)
    return page_text(
        title=comparison.experiment.name,
        subtitle=f"simulated, {lasts}, seed {comparison.seed}",
        body=timeline_body(steps, chart, tables),
    )


def timelines(comparison: Comparison) -> go.Figure:
    """Rate, waiting records, latency and slots above one another; a colour for each policy."""
    figure = make_subplots(rows=4, cols=1, shared_xaxes=True, vertical_spacing=0.065, subplot_titles=TITLES)
    seconds = comparison.experiment.seconds
    slots, scaled = comparison.experiment.slots, comparison.experiment.scaled
    oracle = (comparison.oracle[:, scaled] @ slots[scaled]).astype(np.float64)
    _line(figure, 1, "offered", GREY, comparison.experiment.offered.sum(axis=1), dash="dot")
    _line(figure, 4, "oracle", GREY, oracle, dash="dot", step=True)
    for (run, _), colour in zip(comparison.runs, _colours(len(comparison.runs)), strict=True):
        _line(figure, 1, run.policy, colour, run.seen[:, READ])
        _line(figure, 2, run.policy, colour, run.seen[:, BACKLOG] + run.seen[:, QUEUED])
        _line(figure, 3, run.policy, colour, run.seen[:, LATENCY])
        held = (run.held[:, scaled] @ slots[scaled]).astype(np.float64)
        _line(figure, 4, run.policy, colour, held, step=True)
        _mark(figure, run, colour, held)
    target = comparison.experiment.settings.latency_target
    if target is not None:
        _line(figure, 3, "target", GREY, np.full(seconds, target), dash="dash")
    dress(figure, UNITS, "minutes")
    return figure


def thinned(values: Floats, mean: bool = False) -> tuple[Floats, Floats]:
    """Seconds and values for a line of limited length: of each stretch the largest value, or the mean."""
    width = -(-len(values) // MOST_POINTS)
    starts = np.arange(0, len(values), width)
    if mean:
        lengths = np.diff(np.append(starts, len(values)))
        return starts.astype(np.float64), np.add.reduceat(values, starts) / lengths
    return starts.astype(np.float64), np.maximum.reduceat(values, starts)


def _line(
    figure: go.Figure,
    row: int,
    name: str,
    colour: str,
    values: Floats,
    dash: str = "solid",
    step: bool = False,
) -> None:
    # peaks of what waits must not get lost, but the peaks of a random rate would look like a higher rate
    at, shown = thinned(values, mean=row == 1)
    # six digits are more than a screen shows, and a third of the page's size
    drawn = go.Scatter(
        x=(at / 60).tolist(),
        y=[float(f"{value:.6g}") for value in shown],
        name=name,
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash, "shape": "hv" if step else "linear"},
        hovertemplate=f"{escape_hover(name)} %{{y:,.4g}}<extra></extra>",
        legendgroup=name,
        showlegend=row == 4 or name in ("offered", "target"),
    )
    figure.add_trace(drawn, row=row, col=1)


def _mark(figure: go.Figure, run: Run, colour: str, held: Floats) -> None:
    """A dot at each action, with what it changed and why."""
    if not run.actions:
        return
    at = [action.intended_at for action in run.actions]
    told = [escape_hover(f"{run.policy}: {changed(action)}") for action in run.actions]
    dots = go.Scatter(
        x=[second / 60 for second in at],
        y=[held[min(int(second), len(held) - 1)] for second in at],
        mode="markers",
        marker={"color": colour, "size": 9, "line": {"color": "#ffffff", "width": 1}},
        hovertext=told,
        hovertemplate="%{hovertext}<extra></extra>",
        legendgroup=run.policy,
        showlegend=False,
    )
    figure.add_trace(dots, row=4, col=1)


def dress(figure: go.Figure, units: Sequence[str], time: str) -> None:
    """The look of stacked timelines: one axis of time, a unit on each other axis."""
    figure.update_layout(
        height=1000,
        margin={"l": 70, "r": 24, "t": 60, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "size": 13},
        hovermode="x unified",
        template="none",
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1.03, "yanchor": "bottom"},
    )
    for row, unit in enumerate(units, start=1):
        figure.update_yaxes(title_text=unit, rangemode="tozero", zeroline=False, row=row, col=1)
    figure.update_xaxes(showgrid=False, ticks="outside", ticklen=4)
    figure.update_xaxes(title_text=time, row=len(units), col=1)
    for annotation in figure.layout.annotations:
        annotation.update(x=0, xanchor="left", font={"size": 15}, text=f"<b>{annotation.text}</b>")


def _colours(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _steps(steps: int) -> str:
    return f"{steps} step" if steps == 1 else f"{steps} steps"


def _figures_table(comparison: Comparison) -> str:
    rows = [(run.policy, *figures_of(measures)) for run, measures in comparison.runs]
    return table(HEADINGS, rows) + f'<p class="quiet">{escape(EXPLAINED)}</p>'


def _actions_table(run: Run) -> str:
    if not run.actions:
        return f'<h2>{escape(run.policy)}</h2><p class="quiet">No action was taken.</p>'
    rows = [
        (passed(action.intended_at), changed(action), "; ".join((action.reason, *action.notes)))
        for action in run.actions
    ]
    return f"<h2>{escape(run.policy)}</h2>" + table(("at", "change", "why"), rows)


def table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Text in rows and columns."""
    head = "".join(f"<th>{escape(name)}</th>" for name in headings)
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
