"""The page of the migration benchmark: batch latency over time for each system, as in figure 5.1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from penstock.bench.migration_rows import Phase


def write_timeline(phases: Sequence[Phase], page: Path) -> Path:
    """One picture a case, one line a system, seconds counted from the start of its migration."""
    page.parent.mkdir(parents=True, exist_ok=True)
    parts: list[str] = []
    for case in dict.fromkeys(phase.case for phase in phases):
        mine = [phase for phase in phases if phase.case == case]
        parts.append(_figure(case, mine).to_html(full_html=False, include_plotlyjs=not parts))
    head = "<!doctype html><html><head><meta charset='utf-8'><title>Penstock: migration</title></head>"
    page.write_text(f"{head}<body>{''.join(parts)}</body></html>", encoding="utf-8")
    return page


def _figure(case: str, phases: Sequence[Phase]) -> go.Figure:
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
        title=case,
        xaxis_title="seconds since the migration began",
        yaxis_title="batch latency in seconds",
        yaxis_type="log",
        template="plotly_white",
        height=450,
    )
    return figure
