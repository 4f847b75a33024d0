"""One self-contained HTML page of a run: summary, charts, decisions; no network, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from penstock.view import figures
from penstock.view.page import CHART_CONFIG, page_text, timeline_body, write_text
from penstock.view.words import change, critical, decision_word, effect, mode

Status = Mapping[str, Any]
CHART = "timeline"


def page(status: Status) -> str:
    """The page for one status, as text."""
    critical_path = _critical(status.get("queries", ()), status.get("recent", ()))
    decisions = decision_table(status.get("decisions", ()))
    return page_text(
        title=str(status.get("name") or status["application"]),
        subtitle=_subtitle(status),
        body=timeline_body(summary(status), _charts(status), decisions, between=critical_path),
    )


def write_page(status: Status, path: Path) -> Path:
    """Write the page and return its absolute path."""
    return write_text(page(status), path)


def summary(status: Status) -> list[tuple[str, str, str]]:
    """The few figures that tell how the run went: label, value, note."""
    recent = status.get("recent", ())
    changes = [one for one in status.get("decisions", ()) if one.get("kind") in ("scale-out", "scale-in")]
    held = [point["slots_held"] for point in recent if point.get("slots_held") is not None]
    peak: Mapping[str, Any] = max(
        recent, key=lambda point: float(point.get("backlog_records") or 0), default={}
    )
    return [
        ("offered now", figures.rate(_last(recent, "offered_per_second")), "records"),
        ("observed now", figures.rate(_last(recent, "observed_per_second")), "records"),
        ("largest backlog", figures.count(peak.get("backlog_records")), _when(peak)),
        ("slots held", figures.count(status.get("slots")), _range(held)),
        ("slot-hours", f"{slot_seconds(recent) / 3600:,.2f}", "over the span shown"),
        ("changes", figures.count(len(changes)), _directions(changes)),
    ]


def slot_seconds(recent: Sequence[Mapping[str, Any]]) -> float:
    """Slots held, summed over time; each count lasts until the next point."""
    return float(sum((b["at"] - a["at"]) * (a.get("slots_held") or 0) for a, b in pairwise(recent)))


def decision_table(decisions: Sequence[Mapping[str, Any]]) -> str:
    """All decisions, newest first, as the rows of an HTML table."""
    if not decisions:
        return '<p class="quiet">No decision was taken.</p>'
    rows = "\n".join(_decision_row(one) for one in reversed(decisions))
    head = "".join(f"<th>{name}</th>" for name in ("time", "decision", "executors", "why", "effect"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"


def _decision_row(one: Mapping[str, Any]) -> str:
    cells = (
        f'<td class="time">{escape(figures.clock(one.get("at")))}</td>',
        f'<td><span class="badge">{escape(decision_word(one))}</span></td>',
        f'<td class="change">{escape(change(one))}</td>',
        f"<td>{escape(str(one.get('reason', '')))}</td>",
        f"<td>{escape(effect(one))}</td>",
    )
    return f'<tr class="{escape(str(one.get("kind", "")))}">{"".join(cells)}</tr>'


def _charts(status: Status) -> str:
    # plotly takes half a second to import: only pages need it
    from penstock.view.charts import timeline

    figure = timeline(status.get("recent", ()), status.get("decisions", ()))
    text: str = figure.to_html(full_html=False, include_plotlyjs=True, div_id=CHART, config=CHART_CONFIG)
    return text


def _critical(queries: Sequence[Mapping[str, Any]], recent: Sequence[Mapping[str, Any]]) -> str:
    """What batches waited for: the newest answer of each query in words, and a chart of the last ones."""
    from penstock.view.critical_chart import analysed, critical_path

    shown = analysed(queries)
    if not shown:
        return ""
    said = "".join(f"<p>{escape(words)}</p>" for words in map(critical, shown) if words)
    drawn = critical_path(shown, recent)
    chart = drawn.to_html(full_html=False, include_plotlyjs=False, config=CHART_CONFIG)
    return f'<h2>What batches waited for</h2>\n<section class="card">{said}{chart}</section>'


def _subtitle(status: Status) -> str:
    recent = status.get("recent", ())
    span = figures.seconds(recent[-1]["at"] - recent[0]["at"]) if recent else "nothing observed yet"
    until = f", until {figures.day_and_clock(recent[-1]['at'])}" if recent else ""
    return f"{status['application']} · policy {status['policy']} · {mode(status)} · {span}{until}"


def _last(recent: Sequence[Mapping[str, Any]], key: str) -> float | None:
    known = [point[key] for point in recent if point.get(key) is not None]
    return known[-1] if known else None


def _when(point: Mapping[str, Any]) -> str:
    return f"at {figures.clock(point['at'])}" if point.get("backlog_records") else "records"


def _range(held: Sequence[float]) -> str:
    return f"between {figures.count(min(held))} and {figures.count(max(held))}" if held else ""


def _directions(changes: Sequence[Mapping[str, Any]]) -> str:
    out = sum(one["kind"] == "scale-out" for one in changes)
    return f"{out} out, {len(changes) - out} in"
