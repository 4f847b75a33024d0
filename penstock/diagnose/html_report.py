"""The report as one HTML file that needs nothing from the network."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from penstock.diagnose.diagnosis import Diagnosis
from penstock.diagnose.summary import Summary
from penstock.diagnose.trace import Activity

_STYLE = "body{font-family:sans-serif;max-width:70em;margin:2em auto;padding:0 1em}h1{font-size:1.4em}"
_MOST = 25


def html_report(diagnoses: list[Diagnosis]) -> str:
    """A page with the answer, the four summaries and their course over time, for each application."""
    body = "".join(_application(diagnosis) for diagnosis in diagnoses)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Where latency comes from</title>"
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body>{body}</body></html>"
    )


def _application(diagnosis: Diagnosis) -> str:
    title = escape(f"{diagnosis.name} ({diagnosis.application})")
    advice = "".join(
        f"<li>{escape(finding.sentence)} <em>{escape(finding.advice)}</em></li>"
        for finding in diagnosis.findings
    )
    warnings = "".join(f"<li>{escape(warning)}</li>" for warning in diagnosis.warnings)
    whole = diagnosis.whole
    figures = [
        _compared("Activities", whole, diagnosis.single_path),
        _bars("Workers on the critical path", whole.worker),
        _bars("Operators, per instance", whole.operator),
        _channels(whole),
        *([_over_time(diagnosis.windows)] if len(diagnosis.windows) > 1 else []),
    ]
    charts = "".join(figure.to_html(full_html=False, include_plotlyjs=False) for figure in figures)
    return (
        f"<h1>{title}</h1><p><strong>{escape(diagnosis.answer)}</strong></p><ul>{advice}</ul>{charts}"
        f"{_forecasts(diagnosis)}<h2>Warnings</h2><ul>{warnings or '<li>none</li>'}</ul>"
    )


def _bars(title: str, values: Mapping[str, float]) -> go.Figure:
    top = sorted(values.items(), key=lambda item: -item[1])[:_MOST]
    figure = go.Figure(go.Bar(x=[value for _, value in top], y=[name for name, _ in top], orientation="h"))
    # every bar keeps its label, and shares of a few thousandths are told apart
    figure.update_layout(
        title=title,
        xaxis_tickformat=".2~%",
        yaxis={"autorange": "reversed", "automargin": True, "dtick": 1},
        height=150 + 22 * len(top),
    )
    return figure


def _compared(title: str, summary: Summary, path: Mapping[str, float]) -> go.Figure:
    busy = {name: value for name, value in summary.profile.activity.items() if name != Activity.WAITING.label}
    total = sum(busy.values()) or 1.0
    names = sorted({*summary.activity, *busy}, key=lambda name: -summary.activity.get(name, 0.0))
    figure = go.Figure(
        [
            go.Bar(name="critical path", x=names, y=[summary.activity.get(name, 0.0) for name in names]),
            go.Bar(name="busy time", x=names, y=[busy.get(name, 0.0) / total for name in names]),
            go.Bar(name="one random path", x=names, y=[path.get(name, 0.0) for name in names]),
        ]
    )
    figure.update_layout(title=title, yaxis_tickformat=".0%")
    return figure


def _channels(summary: Summary) -> go.Figure:
    channels = {f"{source} → {target}": share for source, target, share in summary.communication}
    return _bars("Channels on the critical path", channels)


def _over_time(windows: list[Summary]) -> go.Figure:
    figure = go.Figure()
    for activity in Activity:
        values = [window.activity.get(activity.label, 0.0) for window in windows]
        if any(values):
            times = [window.start_us / 1000 for window in windows]
            figure.add_trace(go.Scatter(x=times, y=values, name=activity.label, stackgroup="all"))
    figure.update_layout(title="Critical path over time", yaxis_tickformat=".0%", xaxis_type="date")
    return figure


def _forecasts(diagnosis: Diagnosis) -> str:
    if diagnosis.what_if is None:
        return ""
    rows = "".join(
        f"<tr><td>{item.slots}</td><td>{item.seconds:.1f}</td><td>{item.median_job_seconds:.2f}</td></tr>"
        for item in diagnosis.what_if.forecasts
    )
    head = "<tr><th>slots</th><th>seconds</th><th>median job</th></tr>"
    gains = "".join(
        f"<li>without {escape(name)}: {gain:.1f} s less</li>"
        for name, gain in sorted(diagnosis.what_if.gains.items(), key=lambda item: -item[1])
        if gain >= 0.01 * diagnosis.what_if.measured_seconds
    )
    measured = (
        f"<p>Measured: {diagnosis.what_if.measured_seconds:.1f} s on {diagnosis.what_if.slots} slots.</p>"
    )
    return f"<h2>On other slots</h2>{measured}<table>{head}{rows}</table><ul>{gains}</ul>"
