"""The page of the migration benchmark: batch latency over time for each system, as in figure 5.1."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go

from penstock.bench.migration_rows import Phase
from penstock.view.page import CHART_CONFIG, page_text, write_text


def write_timeline(phases: Sequence[Phase], page: Path) -> Path:
    """One picture a case, one line a system, seconds counted from the start of its migration."""
    cards: list[str] = []
    for case in dict.fromkeys(phase.case for phase in phases):
        drawn = _figure([phase for phase in phases if phase.case == case])
        chart = drawn.to_html(full_html=False, include_plotlyjs=not cards, config=CHART_CONFIG)
        cards.append(f'<h2>{escape(case)}</h2>\n<section class="card">{chart}</section>')
    subtitle = "batch latency while a quarter of the state moves away and back, as in figure 5.1"
    return write_text(page_text("Migration", subtitle, "\n".join(cards)), page)


def _figure(phases: Sequence[Phase]) -> go.Figure:
    figure = go.Figure()
    for phase in phases:
        shown = [*phase.steady, *phase.batches]
        figure.add_scatter(
            name=phase.system,
            x=[batch.start - phase.start for batch in shown],
            y=[batch.seconds for batch in shown],
            mode="lines+markers",
        )
    figure.update_layout(
        xaxis_title="seconds since the migration began",
        yaxis_title="batch latency in seconds",
        yaxis_type="log",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        height=420,
    )
    return figure
