"""The streaming view of the page: each query's batches in charts and in a table, slow ones with why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import plotly.graph_objects as go

from penstock.diagnose.streaming import BatchView, QueryView
from penstock.view import figures
from penstock.view.charts import DASHED, add_line, dress_timelines, make_timelines, place_legend
from penstock.view.colours import BLUE, COLOURS, GREEN, GREY, ORANGE, PURPLE, RED
from penstock.view.frame import Figure, draw_chart
from penstock.view.streaming_terminal import describe_query
from penstock.view.tables import Cell, Row, SortedTable, show_count, show_seconds, show_size, show_text

MOST_DRAWN, MOST_ROWS = 1000, 200
PHASE_COLOURS = {
    "asking the source": ORANGE,
    "offset log": "#e9b44c",
    "planning": RED,
    "running": GREEN,
    "commit log": PURPLE,
    "other": GREY,
}


def show_query(query: QueryView, name: str) -> dict[str, Any]:
    """Return what the template shows of one run of a query."""
    return {
        "name": query.name,
        "anchor": name,
        "sentence": describe_query(query),
        "tiles": _show_tiles(query),
        "cold": _describe_cold(query),
        "slow": [
            (batch.number, figures.seconds(batch.seconds), batch.slow_because)
            for batch in sorted(query.slow, key=lambda one: -one.seconds)[:MOST_ROWS]
        ],
        "chart": draw_chart(draw_batches(query)),
        "table": tabulate_batches(query),
    }


def _show_tiles(query: QueryView) -> list[Figure]:
    newest = query.batches[-1]
    trigger = query.trigger_seconds
    share = (
        f"{query.median_seconds / trigger:.0%} of the trigger interval" if trigger else "no trigger interval"
    )
    tiles = [
        ("median batch", figures.seconds(query.median_seconds), share),
        ("slow batches", figures.count(len(query.slow)), f"of {figures.count(len(query.batches))}"),
    ]
    if query.cold_seconds is not None:
        tiles.append(
            ("cold start", figures.seconds(query.cold_seconds), "the first batch, apart from the rest")
        )
    if newest.watermark_delay_seconds is not None:
        tiles.append(("watermark delay", figures.seconds(newest.watermark_delay_seconds), "newest batch"))
    late = sum(batch.late_rows for batch in query.batches)
    if _has_state(query):
        tiles.append(("state", figures.count(newest.state_rows), f"rows, {figures.size(newest.state_bytes)}"))
        tiles.append(("late rows", figures.count(late), "dropped by the watermark"))
    return tiles


def _has_state(query: QueryView) -> bool:
    return any(batch.state_rows or batch.late_rows for batch in query.batches)


def _describe_cold(query: QueryView) -> str:
    cold = next((batch for batch in query.batches if batch.is_cold), None)
    if cold is None:
        return ""
    phases = sorted(cold.phases.items(), key=lambda one: -one[1])
    told = ", ".join(f"{name} {figures.seconds(length)}" for name, length in phases if length > 0)
    usual = figures.seconds(query.median_seconds)
    return f"Batch {cold.number} was cold: {figures.seconds(cold.seconds)} instead of {usual} ({told})."


Values = Callable[[BatchView], float | None]


def draw_batches(query: QueryView) -> go.Figure:
    """Draw the newest batches above one another; a cold one would hide the rest and is left out."""
    batches = [batch for batch in query.batches if not batch.is_cold][-MOST_DRAWN:]
    at = [datetime.fromtimestamp(batch.start_ms / 1000) for batch in batches]
    charts: list[tuple[str, str, dict[str, Values], str]] = [
        ("Rows per second", "rows/s", {"offered": lambda one: one.offered_per_second,
                                       "processed": lambda one: one.processed_per_second}, "%{y:,.0f}/s"),
    ]  # fmt: skip
    if any(batch.watermark_delay_seconds is not None for batch in batches):
        delay: dict[str, Values] = {"watermark delay": lambda one: one.watermark_delay_seconds}
        charts.append(("Watermark delay", "seconds", delay, "%{y:.1f} s"))
    if _has_state(query):
        charts += [
            ("State rows", "rows", {"state rows": lambda one: one.state_rows,
                                    "late rows": lambda one: one.late_rows}, "%{y:,.0f}"),
            ("State memory", "MB", {"state memory": lambda one: one.state_bytes / 1e6}, "%{y:,.1f} MB"),
        ]  # fmt: skip
    work = _list_state_work(batches)
    titles = [
        "Time by phase",
        *(chart[0] for chart in charts),
        *(["State work, summed over tasks"] if work else []),
    ]
    figure = make_timelines(
        _name_lines(titles, [list(chart[2]) for chart in charts] + [work]), 0.3 / max(3, 2 * len(titles))
    )
    _add_phases(figure, at, batches, query.trigger_seconds)
    for row, (_, _, lines, hover) in enumerate(charts, start=2):
        for colour, (name, values) in zip(COLOURS, lines.items(), strict=False):
            add_line(figure, row, name, at, [values(one) for one in batches], hover, {"showlegend": False},
                     color=colour)  # fmt: skip
    for colour, name in zip(COLOURS, work, strict=False):
        lengths = [_read_state_work(batch).get(name, 0.0) for batch in batches]
        add_line(figure, len(titles), name, at, lengths, "%{y:.2f} s", {"showlegend": False}, color=colour)
    units = ["seconds", *(chart[1] for chart in charts), *(["seconds"] if work else [])]
    layout = {
        "barmode": "stack",
        "height": 190 * len(titles) + 110,
        "margin": {"l": 60, "r": 16, "t": 70, "b": 44},
    }
    dress_timelines(figure, units, "local time", legend=place_legend(1.03), **layout)
    return figure


def _name_lines(titles: Sequence[str], names: Sequence[Sequence[str]]) -> list[str]:
    """Return the titles of the charts, each with the names of its lines in their colours."""
    shown = [titles[0]]
    for title, lines in zip(titles[1:], names, strict=False):
        told = (
            f'<span style="color:{colour}">{name}</span>'
            for colour, name in zip(COLOURS, lines, strict=False)
        )
        shown.append(title + ("</b>  " + ", ".join(told) + "<b>" if len(lines) > 1 else ""))
    return shown


def _add_phases(
    figure: go.Figure, at: Sequence[datetime], batches: Sequence[BatchView], trigger: float | None
) -> None:
    for phase, colour in PHASE_COLOURS.items():
        lengths = [batch.phases.get(phase, 0.0) for batch in batches]
        if any(lengths):
            hover = f"{phase} %{{y:.2f}} s<extra></extra>"
            bar = go.Bar(x=at, y=lengths, name=phase, marker={"color": colour, "line": {"width": 0}},
                         hovertemplate=hover)  # fmt: skip
            figure.add_trace(bar, row=1, col=1)
    slow = [(when, one) for when, one in zip(at, batches, strict=True) if one.slow_because]
    marks = go.Scatter(
        x=[when for when, _ in slow], y=[one.seconds for _, one in slow], mode="markers", name="slow",
        marker={"color": RED, "symbol": "triangle-down", "size": 9},
        hovertext=[f"batch {one.number} was slow" for _, one in slow],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip
    if slow:
        figure.add_trace(marks, row=1, col=1)
    if trigger:
        text = f"trigger {figures.seconds(trigger)}"
        figure.add_hline(y=trigger, line=DASHED | {"color": BLUE}, annotation_text=text, row=1, col=1)


def _read_state_work(batch: BatchView) -> dict[str, float]:
    """Return update, removal and the parts of the commit; without parts, the commit itself."""
    commits = {f"commit: {name}": length for name, length in batch.commit_parts.items()}
    whole = {} if commits else {"commit": batch.state_seconds.get("commit", 0.0)}
    others = {name: length for name, length in batch.state_seconds.items() if name != "commit"}
    return others | whole | commits


def _list_state_work(batches: Sequence[BatchView]) -> list[str]:
    """Return the parts of the state's work that took any time, those with most of it first."""
    sums: dict[str, float] = {}
    for batch in batches:
        for name, length in _read_state_work(batch).items():
            sums[name] = sums.get(name, 0.0) + length
    return sorted((name for name, length in sums.items() if length > 0), key=lambda name: -sums[name])


def tabulate_batches(query: QueryView) -> SortedTable:
    """Return the slow and the newest batches; of few batches, all."""
    kept = {id(batch) for batch in [*query.slow[-MOST_ROWS:], *query.batches[-MOST_ROWS:]]}
    shown = [batch for batch in query.batches if id(batch) in kept or batch.is_cold]
    phases = list(query.batches[0].phases)
    state = _has_state(query)
    headings = [
        "batch",
        "at",
        "took",
        "of trigger",
        "rows in",
        "rows out",
        "offered/s",
        "processed/s",
        *phases,
    ]
    headings += ["watermark delay", "late rows", "state rows", "state memory", "update", "removal", "commit",
                 "parts of the commit"] if state else []  # fmt: skip
    left_out = len(query.batches) - len(shown)
    note = f"{figures.count(left_out)} older batches that were not slow are left out" if left_out else ""
    return SortedTable(headings, [Row(_show_batch(query, one, state)) for one in shown], note)


def _show_batch(query: QueryView, batch: BatchView, state: bool) -> list[Cell]:
    of_trigger = batch.seconds / query.trigger_seconds if query.trigger_seconds else None
    mark = "cold" if batch.is_cold else "slow" if batch.slow_because else ""
    cells = [
        Cell(f"{batch.number}", batch.number, mark=mark),
        Cell(figures.clock(batch.start_ms / 1000), batch.start_ms),
        show_seconds(batch.seconds),
        Cell(figures.share(of_trigger), of_trigger or 0.0),
        show_count(batch.rows_in),
        show_count(batch.rows_out),
        show_count(batch.offered_per_second),
        show_count(batch.processed_per_second),
        *(show_seconds(length) for length in batch.phases.values()),
    ]
    if not state:
        return cells
    parts = ", ".join(f"{name} {figures.seconds(length)}" for name, length in batch.commit_parts.items())
    return [
        *cells,
        show_seconds(batch.watermark_delay_seconds),
        show_count(batch.late_rows),
        show_count(batch.state_rows),
        show_size(batch.state_bytes),
        *(show_seconds(length) for length in batch.state_seconds.values()),
        show_text(parts),
    ]
