"""A diagnosis as one HTML page that needs nothing from the network: answer, what to do, charts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from penstock.diagnose.answer import Finding
from penstock.diagnose.diagnosis import Diagnosis
from penstock.diagnose.what_if import WhatIf
from penstock.view import diagnosis_charts, figures
from penstock.view.page import CHART_CONFIG, charts_page

_STYLE = """
.answer { font-size: 20px; line-height: 1.4; }
.share { white-space: nowrap; font-variant-numeric: tabular-nums; width: 150px; }
.bar { display: inline-block; height: 9px; border-radius: 5px; background: var(--out); margin-right: 8px; }
.advice { color: var(--quiet); }
.application { margin-top: 20px; }
.application + .application { margin-top: 56px; }
h3 { margin: 4px 0 0; font-size: 15px; }
h3 + p { margin: 0; }
"""


def diagnosis_page(diagnoses: Sequence[Diagnosis]) -> str:
    """The page of these applications; of many, a list of their answers comes first."""
    first = diagnoses[0]
    alone = len(diagnoses) == 1
    title = first.name or first.application if alone else f"{len(diagnoses)} applications"
    parts = [_application(one, number, alone) for number, one in enumerate(diagnoses)]
    return charts_page(
        title=title,
        subtitle=_span(first) if alone else "where their latency comes from",
        body="\n".join(parts if alone else [_overview(diagnoses), *parts]),
        style=_STYLE,
    )


def _span(diagnosis: Diagnosis) -> str:
    whole = diagnosis.whole
    lasts = figures.seconds((whole.end_us - whole.start_us) / 1e6)
    return f"{diagnosis.application} · {lasts} from {figures.day_and_clock(whole.start_us / 1e6)}"


def _overview(diagnoses: Sequence[Diagnosis]) -> str:
    rows = "\n".join(
        f'<tr><td><a href="#application-{number}">{escape(one.name or one.application)}</a></td>'
        f"<td>{escape(_span(one))}</td><td>{escape(one.answer)}</td></tr>"
        for number, one in enumerate(diagnoses)
    )
    return f'<section class="card"><table><tbody>\n{rows}\n</tbody></table></section>'


def _application(diagnosis: Diagnosis, number: int, alone: bool) -> str:
    title = "" if alone else f"<h1>{escape(diagnosis.name)}</h1><p>{escape(_span(diagnosis))}</p>"
    return "\n".join(
        [
            f'<section class="application" id="application-{number}">{title}',
            f'<section class="card"><p class="answer">{escape(diagnosis.answer)}</p></section>',
            f'<h2>What to do</h2><section class="card">{_findings(diagnosis.findings)}</section>',
            _course(diagnosis),
            _summaries(diagnosis),
            _what_if(diagnosis.what_if),
            _warnings(diagnosis.warnings),
            "</section>",
        ]
    )


def _findings(found: Sequence[Finding]) -> str:
    if not found:
        return '<p class="quiet">Nothing stands out.</p>'
    return "<table><tbody>" + "\n".join(map(_finding, found)) + "</tbody></table>"


def _finding(finding: Finding) -> str:
    gain = finding.gain_seconds or 0.0
    worth = f" Worth up to {figures.seconds(gain)}." if gain >= 0.1 else ""
    bar = f'<span class="bar" style="width:{max(2, round(80 * finding.share))}px"></span>'
    return (
        f'<tr><td class="share">{bar}{figures.share(finding.share)}</td><td>{escape(finding.sentence)}<br>'
        f'<span class="advice">{escape(finding.advice)}{escape(worth)}</span></td></tr>'
    )


def _course(diagnosis: Diagnosis) -> str:
    if len(diagnosis.windows) < 2:
        return ""
    return _card("What each window waited for", "", diagnosis_charts.course(diagnosis), heading="h2")


def _summaries(diagnosis: Diagnosis) -> str:
    whole = diagnosis.whole
    cards = [
        _card("Activities", "what the critical path is made of", diagnosis_charts.activities(diagnosis)),
        _card("Workers", "one that stands out is a straggler", diagnosis_charts.ranking(whole.worker)),
        _card(
            "Operators",
            "for each worker that ran them: a long bar wants more",
            diagnosis_charts.operators(whole),
        ),
        _card("Channels", "messages that others waited for", diagnosis_charts.channels(whole)),
    ]
    return f'<h2>The critical path</h2><div class="charts">{"".join(cards)}</div>'


def _card(title: str, note: str, figure: go.Figure, heading: str = "h3") -> str:
    chart = figure.to_html(full_html=False, include_plotlyjs=False, config=CHART_CONFIG)
    told = f'<p class="quiet">{escape(note)}</p>' if note else ""
    if heading == "h2":
        return f'<h2>{escape(title)}</h2><section class="card">{told}{chart}</section>'
    return f'<section class="card"><h3>{escape(title)}</h3>{told}{chart}</section>'


def _what_if(found: WhatIf | None) -> str:
    if found is None:
        return ""
    gains = "".join(
        f"<tr><td>without {escape(name)}</td><td>{figures.seconds(gain)} less</td></tr>"
        for name, gain in sorted(found.gains.items(), key=lambda item: -item[1])
        if gain >= 0.01 * found.measured_seconds
    )
    table = f"<table><tbody>{gains}</tbody></table>" if gains else ""
    chart = _card("On other slots", "the task graph, replayed", diagnosis_charts.forecasts(found))
    if found.jobs > 1:
        note = f"the median of {found.jobs} jobs"
        chart += _card("One job on other slots", note, diagnosis_charts.job_forecasts(found))
    without = (
        f'<section class="card"><h3>Without</h3>{table or "<p>Nothing alone would save 1 %.</p>"}</section>'
    )
    return f'<h2>What if</h2><div class="charts">{chart}{without}</div>'


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    told = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f'<h2>Warnings</h2><section class="card"><ul>{told}</ul></section>'
