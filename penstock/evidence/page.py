"""The evidence as one HTML page that needs nothing from the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from penstock.evidence.charts import drawn
from penstock.evidence.findings import Finding, PartOutcome, Status, Verdict
from penstock.view.page import charts_page, tiles, write_text

_STYLE = """
a { color: inherit; }
td { overflow-wrap: break-word; }
.findings { min-width: 820px; }
.findings td:first-child { width: 24%; }
.reproduced, .better, .done { color: var(--out); }
.worse, .failed { color: var(--bad); }
.not-comparable, .missing, .left-to-the-full-run { color: var(--warn); }
.badge.reproduced, .badge.better { color: var(--out); }
.badge.worse { color: var(--bad); }
.badge.not-comparable { color: var(--warn); }
.why, .conditions, .notes { color: var(--quiet); font-size: 13px; }
.why { margin-top: 2px; }
.charts { margin-top: 12px; }
.charts > .card { padding: 12px; }
h2 { margin: 44px 0 4px; }
h2 + p { margin: 0 0 12px; }
"""


_LEGEND = (
    "Each result stands beside the figure that was published, and beside what one would use instead, the "
    "baseline, where there is one. Reproduced: within the tolerance of the published figure, or the claim "
    "holds. Better and worse: beyond that, to one side or the other. Not comparable: both are shown, with "
    "the reason why they are not held against each other. Each part says under which conditions it was run."
)
_THESIS = "Managing and understanding distributed stream processing, thesis, ETH Zurich 2019, chapter"
PAPERS = {
    "DS2": "Three steps is all you need: fast, accurate, automatic scaling decisions for distributed "
    "streaming dataflows, OSDI 2018",
    "Snailtrail": f"{_THESIS} 3, whose numbers figures and tables have here",
    "Megaphone": f"{_THESIS} 5, whose numbers figures have here",
    "AuTraScale": "AuTraScale: An Automated and Transfer Learning Solution for Streaming System Auto-Scaling",
    "Sage": "Auto-sizing for Stream Processing Applications at LinkedIn",
    "Elastic Pulsar Functions": "Elastic Pulsar Functions for Distributed Stream Processing, Auto-DaSP 2021",
}
"""What a paper is called here → its title."""


def write_page(outcomes: Sequence[PartOutcome], machine: str, date: str, path: Path) -> Path:
    """Write the page and return its absolute path."""
    return write_text(page(outcomes, machine, date), path)


def page(outcomes: Sequence[PartOutcome], machine: str, date: str) -> str:
    """The page as text; parts that were run elsewhere or on another day say so."""
    parts = "\n".join(_part(outcome, machine, date) for outcome in outcomes)
    return charts_page(
        title="Evidence",
        subtitle=f"{machine} · written on {date} · {_kind(outcomes)}",
        body=f"{_tiles(outcomes)}{_contents(outcomes)}{parts}{_papers(outcomes)}",
        style=_STYLE,
    )


def _kind(outcomes: Sequence[PartOutcome]) -> str:
    quick = sum(outcome.quick for outcome in outcomes)
    if not quick:
        return "full run"
    whole = "quick run" if quick == len(outcomes) else f"{quick} of {len(outcomes)} parts from a quick run"
    return f"{whole}: shorter, and rougher figures"


def counted(outcomes: Sequence[PartOutcome]) -> str:
    """How many results have which verdict, and which parts have none."""
    said = [f"{count} {verdict.value}" for verdict, count in _verdicts(outcomes).items()]
    statuses = Counter(outcome.status for outcome in outcomes)
    said += [
        f"{statuses[status]} {_parts(statuses[status])} {status.value}"
        for status in (Status.FAILED, Status.MISSING, Status.LEFT)
        if statuses[status]
    ]
    return ", ".join(said) or "nothing was run"


def _verdicts(outcomes: Sequence[PartOutcome]) -> dict[Verdict, int]:
    found = Counter(finding.verdict for outcome in outcomes for finding in outcome.result.findings)
    return {verdict: found[verdict] for verdict in Verdict if found[verdict]}


def _parts(count: int) -> str:
    return "part" if count == 1 else "parts"


def _tiles(outcomes: Sequence[PartOutcome]) -> str:
    statuses = Counter(outcome.status for outcome in outcomes)
    results = [(verdict.value, str(count), "results") for verdict, count in _verdicts(outcomes).items()]
    parts = [(status.value, str(count), _parts(count)) for status, count in statuses.items()]
    return tiles([*results, *parts])


def _contents(outcomes: Sequence[PartOutcome]) -> str:
    rows = "\n".join(
        f'<tr><td><a href="#{outcome.name}">{escape(outcome.title)}</a></td><td>{escape(outcome.shows)}</td>'
        f'<td class="{_css(outcome.status)}">{outcome.status.value}</td>'
        f"<td>{escape(counted([outcome]) if outcome.result.findings else outcome.reason)}</td></tr>"
        for outcome in outcomes
    )
    head = "".join(f"<th>{name}</th>" for name in ("part", "published as", "status", "results"))
    return f'<p class="quiet">{_LEGEND}</p><section class="card">{_rows(head, rows)}</section>'


def _papers(outcomes: Sequence[PartOutcome]) -> str:
    """The titles of those papers that are named."""
    named = {name: title for name, title in PAPERS.items() if any(name in one.shows for one in outcomes)}
    listed = "".join(f"<li>{escape(name)}: {escape(title)}</li>" for name, title in named.items())
    return f'<h2>Papers</h2><ul class="notes">{listed}</ul>' if listed else ""


def _rows(head: str, rows: str, kind: str = "") -> str:
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>'


def _part(outcome: PartOutcome, machine: str, date: str) -> str:
    heading = f'<h2 id="{outcome.name}">{escape(outcome.title)}</h2>'
    told = f'<p class="quiet">{escape(outcome.shows)}{escape(_taken(outcome, machine, date))}</p>'
    if outcome.status is not Status.DONE:
        said = f"{outcome.status.value}: {outcome.reason}"
        return f'{heading}{told}<section class="card {_css(outcome.status)}">{escape(said)}</section>'
    charts = "".join(f'<section class="card">{drawn(chart)}</section>' for chart in outcome.result.charts)
    plots = f'<div class="charts">{charts}</div>' if charts else ""
    listed = "".join(f"<li>{escape(note)}</li>" for note in outcome.result.notes)
    notes = f'<ul class="notes">{listed}</ul>' if listed else ""
    return f"{heading}{told}{_table(outcome.result.findings)}{plots}{notes}"


def _taken(outcome: PartOutcome, machine: str, date: str) -> str:
    """How it was run, how long that took, when and where if not here and now; nothing if it was not run."""
    if outcome.status in (Status.MISSING, Status.LEFT):
        return ""
    kind = "quick run" if outcome.quick else "full run"
    told = f" · {kind}, {f'{outcome.seconds:.0f} s' if outcome.seconds >= 1 else 'less than 1 s'}"
    told += f" · run on {outcome.date}" if outcome.date not in ("", date) else ""
    return told + (f" · {outcome.machine}" if outcome.machine not in ("", machine) else "")


def _table(findings: Sequence[Finding]) -> str:
    """A row a result; conditions that all share stand above, and a column that would be empty is left out."""
    conditions = {finding.conditions for finding in findings}
    shared = conditions.pop() if len(conditions) == 1 else ""
    above = f'<p class="conditions">{escape(shared)}</p>' if shared else ""
    baseline = any(finding.baseline is not None for finding in findings)
    apart = bool(conditions) and not shared
    columns = ["result", "published", "ours", *(["baseline"] if baseline else []), "verdict"]
    columns += ["conditions"] if apart else []
    head = "".join(f"<th>{column}</th>" for column in columns)
    rows = "\n".join(_row(finding, baseline, apart) for finding in findings)
    return f'{above}<section class="card">{_rows(head, rows, "findings")}</section>' if rows else ""


def _row(finding: Finding, baseline: bool, conditions: bool) -> str:
    values = (finding.published, finding.ours, *((finding.baseline,) if baseline else ()))
    plain = "".join(f"<td>{escape(cell)}</td>" for cell in (finding.result, *map(shown, values)))
    why = f'<div class="why">{escape(finding.why)}</div>' if finding.why else ""
    verdict = f'<span class="badge {_css(finding.verdict)}">{finding.verdict.value}</span>{why}'
    under = f'<td class="conditions">{escape(finding.conditions)}</td>' if conditions else ""
    return f"<tr>{plain}<td>{verdict}</td>{under}</tr>"


def _css(word: Status | Verdict) -> str:
    return str(word.value).replace(" ", "-")


def shown(value: float | str | None) -> str:
    """A figure for a reader."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"
