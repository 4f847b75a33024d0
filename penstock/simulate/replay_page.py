"""One self-contained HTML page of a replay: what really happened, and what the policy would have held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from penstock.dataflow.summary import QuerySummary
from penstock.journal.records import ObservationRecord
from penstock.simulate.page import dress, table
from penstock.simulate.replay import Moment, Replay, changed
from penstock.view.charts import BLUE, GREY, ORANGE, escape_hover
from penstock.view.page import CHART_CONFIG, page_text, timeline_body, write_text

TITLES = ("Rate", "Backlog", "Latency", "Size")
UNITS = ("records per second", "records", "seconds", "executors or instances")
DONE = "really held"
SHADE = "rgba(217, 130, 43, 0.10)"


def write_replay_page(found: Replay, observations: Sequence[ObservationRecord], path: Path) -> Path:
    """Write the page and return its absolute path."""
    return write_text(replay_page(found, observations), path)


def replay_page(found: Replay, observations: Sequence[ObservationRecord]) -> str:
    """The page as text."""
    drawn = both_timelines(found, observations)
    chart = drawn.to_html(full_html=False, include_plotlyjs=True, div_id="timeline", config=CHART_CONFIG)
    first, last = found.moments[0], found.moments[-1]
    span = f"{_moment(first.at):%Y-%m-%d %H:%M} to {_moment(last.at):%Y-%m-%d %H:%M} UTC"
    return page_text(
        title=found.application,
        subtitle=f"replayed with {found.policy}, {span}",
        body=timeline_body(_figures(found), chart, _remarks(found) + _decisions(found)),
    )


def both_timelines(found: Replay, observations: Sequence[ObservationRecord]) -> go.Figure:
    """The load and what it met, then the size that was held beside the one that would have been."""
    figure = make_subplots(rows=4, cols=1, shared_xaxes=True, vertical_spacing=0.065, subplot_titles=TITLES)
    at = [_moment(record.at) for record in observations]
    _line(figure, 1, "offered", GREY, at, [_sum(r, "offered_per_second") for r in observations], dash="dot")
    _line(figure, 1, "read", BLUE, at, [_sum(r, "observed_per_second") for r in observations])
    _line(figure, 2, "backlog", BLUE, at, [_sum(r, "backlog_records") for r in observations])
    _line(figure, 3, "latency", BLUE, at, [_slowest(record.queries) for record in observations])
    moments = [_moment(moment.at) for moment in found.moments]
    _line(figure, 4, DONE, BLUE, moments, [_total(m.held) for m in found.moments], step=True)
    would = [_total(moment.would_hold) for moment in found.moments]
    _line(figure, 4, f"{found.policy} would hold", ORANGE, moments, would, dash="dash", step=True)
    _mark(figure, DONE, BLUE, [(m, m.held, m.done) for m in found.moments])
    _mark(figure, found.policy, ORANGE, [(m, m.would_hold, m.decided) for m in found.moments])
    for start, end in _unobserved(found.moments):
        figure.add_vrect(x0=_moment(start), x1=_moment(end), fillcolor=SHADE, line_width=0, row=4, col=1)
    dress(figure, UNITS, "time, UTC")
    return figure


def _line(
    figure: go.Figure,
    row: int,
    name: str,
    colour: str,
    at: Sequence[datetime],
    values: Iterable[float | None],
    dash: str = "solid",
    step: bool = False,
) -> None:
    drawn = go.Scatter(
        x=at,
        y=[None if value is None else float(f"{value:.6g}") for value in values],
        name=name,
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash, "shape": "hv" if step else "linear"},
        hovertemplate=f"{escape_hover(name)} %{{y:,.4g}}<extra></extra>",
        showlegend=row in {1, 4},
    )
    figure.add_trace(drawn, row=row, col=1)


def _mark(
    figure: go.Figure,
    name: str,
    colour: str,
    changes: Iterable[tuple[Moment, Mapping[str, int], Mapping[str, int] | None]],
) -> None:
    """A dot at each change, with what it changed."""
    marked = [(moment, before, after) for moment, before, after in changes if after is not None]
    dots = go.Scatter(
        x=[_moment(moment.at) for moment, _, _ in marked],
        y=[_total(before) for _, before, _ in marked],
        mode="markers",
        marker={"color": colour, "size": 9, "line": {"color": "#ffffff", "width": 1}},
        hovertext=[escape_hover(f"{name}: {changed(before, after)}") for _, before, after in marked],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
    )
    figure.add_trace(dots, row=4, col=1)


def _unobserved(moments: Sequence[Moment]) -> list[tuple[float, float]]:
    """The spans in which the policy would have held what was not observed."""
    spans: list[tuple[float, float]] = []
    for observed, group in groupby(moments, key=lambda moment: moment.observed):
        at = [moment.at for moment in group]
        if not observed:
            spans.append((at[0], at[-1]))
    return spans


def _figures(found: Replay) -> list[tuple[str, str, str]]:
    share = found.unobserved / len(found.moments)
    return [
        ("changes made", str(found.steps_done), ""),
        (f"changes by {found.policy}", str(found.steps), ""),
        ("windows", str(len(found.moments)), ""),
        ("of them at another size", f"{share:.0%}", ""),
    ]


def _remarks(found: Replay) -> str:
    told = []
    if found.warning:
        told.append(f"Beware: {found.warning}. The shaded spans of the size are those.")
    if found.unreadable:
        told.append(f"{found.unreadable} observations of an older version were left out.")
    return "".join(f'<p class="quiet">{escape(text)}</p>' for text in told)


def _decisions(found: Replay) -> str:
    rows = [
        (
            f"{_moment(moment.at):%m-%d %H:%M:%S}",
            moment.told_decided,
            moment.told_done,
            moment.reason,
        )
        for moment in found.moments
        if moment.decided is not None or moment.done is not None
    ]
    if not rows:
        return '<p class="quiet">Nothing was changed, and nothing would have been.</p>'
    return table(("at", f"{found.policy} decides", "was done", f"why {found.policy} does so"), rows)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _total(sizes: Mapping[str, int]) -> float:
    return float(sum(sizes.values()))


def _sum(record: ObservationRecord, figure: str) -> float | None:
    values = [getattr(query, figure) for query in record.queries]
    return sum(values) if values else None


def _slowest(queries: Sequence[QuerySummary]) -> float | None:
    return max(
        (query.latency_seconds for query in queries if query.latency_seconds is not None), default=None
    )
