"""The evidence as one HTML page that needs nothing from the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from penstock.errors import ActionFailed
from penstock.evidence.findings import Chart, Finding, PartOutcome, Status, Verdict

_STYLE = (
    "body{font-family:sans-serif;max-width:76em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;width:100%;font-size:.9em}td,th{padding:.35em .6em;text-align:left;"
    "border-bottom:1px solid #ddd;vertical-align:top}h2{margin-top:2em}.dim{color:#777}"
    ".reproduced,.better{color:#1d7a55}.worse,.failed{color:#b03a3a}.not-comparable,.missing,"
    ".left-to-the-full-run{color:#8a6d1f}.plots>div{min-width:0}"
    ".plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(34em,1fr))}"
)


def write_page(outcomes: Sequence[PartOutcome], machine: str, path: Path) -> Path:
    """Write the page and return its absolute path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(outcomes, machine), encoding="utf-8")
    except OSError as error:
        raise ActionFailed(f"cannot write the page {path}: {error.strerror}") from error
    return path.resolve()


def page(outcomes: Sequence[PartOutcome], machine: str) -> str:
    """The page as text."""
    body = "".join(_part(outcome) for outcome in outcomes)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Evidence</title>"
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body>"
        f"<h1>Evidence</h1><p class='dim'>{escape(machine)}</p><p>{escape(counted(outcomes))}</p>"
        f"{_contents(outcomes)}{body}</body></html>"
    )


def counted(outcomes: Sequence[PartOutcome]) -> str:
    """How many results have which verdict, and which parts have none."""
    verdicts = Counter(finding.verdict for outcome in outcomes for finding in outcome.result.findings)
    said = [f"{verdicts[verdict]} {verdict.value}" for verdict in Verdict if verdicts[verdict]]
    statuses = Counter(outcome.status for outcome in outcomes)
    said += [
        f"{statuses[status]} {'part' if statuses[status] == 1 else 'parts'} {status.value}"
        for status in (Status.FAILED, Status.MISSING, Status.LEFT)
        if statuses[status]
    ]
    return ", ".join(said) or "nothing was run"


def _contents(outcomes: Sequence[PartOutcome]) -> str:
    rows = "".join(
        f"<tr><td><a href='#{outcome.name}'>{escape(outcome.title)}</a></td><td>{escape(outcome.shows)}</td>"
        f"<td class='{_css(outcome.status)}'>{outcome.status.value}</td></tr>"
        for outcome in outcomes
    )
    return f"<table><tr><th>part</th><th>published as</th><th>status</th></tr>{rows}</table>"


def _part(outcome: PartOutcome) -> str:
    heading = f"<h2 id='{outcome.name}'>{escape(outcome.title)}</h2>"
    kind = "quick run" if outcome.quick else "full run"
    told = f"<p class='dim'>{escape(outcome.shows)}; {kind}, {outcome.seconds:.0f} s</p>"
    if outcome.status is not Status.DONE:
        said = f"{outcome.status.value}: {outcome.reason}"
        return f"{heading}{told}<p class='{_css(outcome.status)}'>{escape(said)}</p>"
    notes = "".join(f"<li>{escape(note)}</li>" for note in outcome.result.notes)
    charts = "".join(f"<div>{_chart(chart)}</div>" for chart in outcome.result.charts)
    plots = f"<div class='plots'>{charts}</div>" if charts else ""
    return f"{heading}{told}{_table(outcome.result.findings)}{plots}<ul class='dim'>{notes}</ul>"


def _table(findings: Sequence[Finding]) -> str:
    columns = ("result", "published", "ours", "baseline", "verdict", "conditions")
    head = "".join(f"<th>{column}</th>" for column in columns)
    return f"<table><tr>{head}</tr>{''.join(_row(finding) for finding in findings)}</table>"


def _row(finding: Finding) -> str:
    word = finding.verdict.value
    verdict = f"{word}: {finding.why}" if finding.why else word
    cells = [finding.result, *(shown(value) for value in (finding.published, finding.ours, finding.baseline))]
    plain = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return (
        f"<tr>{plain}<td class='{_css(finding.verdict)}'>{escape(verdict)}</td>"
        f"<td class='dim'>{escape(finding.conditions)}</td></tr>"
    )


def _css(word: Status | Verdict) -> str:
    return str(word.value).replace(" ", "-")


def shown(value: float | str | None) -> str:
    """A figure for a reader."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:,.4g}"


def _chart(chart: Chart) -> str:
    figure = go.Figure()
    for name, x, y in chart.series:
        if chart.bars:
            figure.add_trace(go.Bar(name=name, x=list(x), y=list(y)))
            continue
        shape = "hv" if chart.steps else "linear"
        mode = "lines+markers" if chart.points else "lines"
        figure.add_trace(go.Scatter(name=name, x=list(x), y=list(y), mode=mode, line={"shape": shape}))
    figure.update_layout(
        title=chart.title,
        xaxis_title=chart.x,
        yaxis_title=chart.y,
        height=360,
        template="plotly_white",
        showlegend=True,
        **{f"{axis}axis_type": "log" for axis in chart.logarithmic},
    )
    shown_bare = {"responsive": True, "displayModeBar": False}
    text: str = figure.to_html(full_html=False, include_plotlyjs=False, config=shown_bare)
    return text
