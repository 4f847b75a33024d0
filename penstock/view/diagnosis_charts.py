"""The charts of a diagnosis: the four summaries, their course over time, and what other slots would bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from penstock.diagnose.answer import cause_shares, findings, plain_answer
from penstock.diagnose.diagnosis import Diagnosis
from penstock.diagnose.summary import Summary
from penstock.diagnose.trace import Activity
from penstock.diagnose.what_if import WhatIf
from penstock.view import figures
from penstock.view.charts import BLUE, GREEN, GREY, ORANGE, escape_hover
from penstock.view.critical_chart import critical_path

MOST_BARS = 20
LONGEST_NAME = 60
SMALLEST_SHARE = 0.0005


def activities(diagnosis: Diagnosis) -> go.Figure:
    """Each activity's share of the critical path, beside busy time and one path alone."""
    whole = diagnosis.whole
    busy = {name: value for name, value in whole.profile.activity.items() if name != Activity.WAITING.label}
    total = sum(busy.values()) or 1.0
    shares = (
        ("critical path", GREEN, whole.activity),
        ("busy time", GREY, {name: value / total for name, value in busy.items()}),
        ("one random path", BLUE, diagnosis.single_path),
    )
    names = sorted({*whole.activity, *busy}, key=lambda name: -whole.activity.get(name, 0.0))
    names = [name for name in names if max(each.get(name, 0.0) for _, _, each in shares) >= SMALLEST_SHARE]
    figure = go.Figure([_bar(label, color, names, values) for label, color, values in shares])
    figure.update_layout(barmode="group", bargap=0.25, height=90 + 58 * len(names))
    return _dressed(figure)


def ranking(values: Mapping[str, float], color: str = GREEN) -> go.Figure:
    """The largest shares, longest bar on top."""
    kept = {name: value for name, value in values.items() if value >= SMALLEST_SHARE}
    top = dict(sorted(kept.items(), key=lambda item: -item[1])[:MOST_BARS])
    figure = go.Figure([_bar("", color, list(top), top)])
    figure.update_layout(height=70 + 28 * max(1, len(top)), showlegend=False)
    return _dressed(figure)


def operators(summary: Summary) -> go.Figure:
    """The shares of operators for each of their instances."""
    named = {
        f"{name} (on {figures.count(summary.instances.get(name, 1))})": share
        for name, share in summary.operator.items()
    }
    return ranking(named)


def channels(summary: Summary) -> go.Figure:
    """Messages on the critical path."""
    return ranking({f"{source} → {target}": share for source, target, share in summary.communication}, BLUE)


def course(diagnosis: Diagnosis) -> go.Figure:
    """What each window waited for, in seconds."""
    usual = (diagnosis.windows[0].end_us - diagnosis.windows[0].start_us) / 1e6
    windows = [
        {
            "at": window.start_us / 1e6 + usual / 2,
            "seconds": window.length_us / 1e6,
            "causes": {cause: share for cause, share in cause_shares(window).items() if share > 0},
            "batch_id": number,
            "answer": plain_answer(findings(window)),
        }
        for number, window in enumerate(diagnosis.windows, start=1)
    ]
    return critical_path([{"name": "", "critical_windows": windows}], word="window")


def forecasts(found: WhatIf) -> go.Figure:
    """How long the application would take on other slots, and how long it took."""
    return _by_slots(found, [item.seconds for item in found.forecasts], found.measured_seconds)


def job_forecasts(found: WhatIf) -> go.Figure:
    """How long its median job would take on other slots, and how long it took."""
    return _by_slots(found, [item.median_job_seconds for item in found.forecasts], found.measured_job_seconds)


def _by_slots(found: WhatIf, seconds: Sequence[float], measured: float) -> go.Figure:
    bars = go.Bar(
        x=[str(item.slots) for item in found.forecasts],
        y=seconds,
        marker={"color": [ORANGE if item.slots == found.slots else BLUE for item in found.forecasts]},
        text=[figures.seconds(value) for value in seconds],
        hovertemplate="%{x} slots: %{text}<extra></extra>",
        width=0.5,
    )
    figure = go.Figure([bars])
    line = {"color": GREY, "width": 1.5, "dash": "dash"}
    figure.add_hline(y=measured, line=line, annotation_text=f"measured {figures.seconds(measured)}")
    figure.update_layout(height=300, showlegend=False)
    _dressed(figure)
    figure.update_xaxes(type="category", title_text="slots", tickformat="")
    figure.update_yaxes(title_text="seconds", autorange=True, rangemode="tozero", dtick=None, ticksuffix="")
    return figure


def _bar(label: str, color: str, names: Sequence[str], values: Mapping[str, float]) -> go.Bar:
    shares = [values.get(name, 0.0) for name in names]
    return go.Bar(
        name=label,
        x=shares,
        y=[_short(name) for name in names],
        orientation="h",
        marker={"color": color},
        text=[_percent(share) for share in shares],
        textposition="outside",
        cliponaxis=False,
        hovertext=[escape_hover(name) for name in names],
        hovertemplate="%{hovertext}: %{text}<extra></extra>",
    )


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def _short(name: str) -> str:
    """Names of plan nodes in a row can be as long as a page is wide; hovering shows all of it."""
    text = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return escape_hover(text)


def _dressed(figure: go.Figure) -> go.Figure:
    layout: dict[str, Any] = {
        "margin": {"l": 12, "r": 60, "t": 36, "b": 36},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "size": 13},
        "template": "none",
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"},
    }
    figure.update_layout(layout)
    figure.update_yaxes(autorange="reversed", automargin=True, dtick=1, showgrid=False, ticksuffix="  ")
    figure.update_xaxes(tickformat=".2~%", zeroline=False, rangemode="tozero")
    return figure
