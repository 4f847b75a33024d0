"""The report that people forward: what was held against the peak, how queries kept up, what was changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.journal.records import ActionRecord, ObservationRecord
from penstock.journal.report import ApplicationReport, QueryKept
from penstock.runtime.status import plain_point
from penstock.runtime.tally import name_change
from penstock.runtime.timeline import TimelinePoint
from penstock.view import figures
from penstock.view.frame import Figure, draw_chart, render_page

MOST_POINTS, MOST_ACTIONS = 600, 200
QUERY_HEADINGS = ("query", "kept up", "batch, median and 95 %", "latency, median and 95 %", "largest backlog")


def render_report_page(report: ApplicationReport) -> str:
    """Render the report as one page that needs nothing else."""
    from penstock.view.run_page import draw_timeline

    changes = [describe_action(one) for one in report.actions]
    points = thin_out(report.observations)
    chart = draw_chart(draw_timeline(points, changes[-MOST_ACTIONS:]), "timeline") if points else ""
    return render_page(
        "report.html.j2",
        title=f"{report.name}: {describe_span(report)}",
        subtitle=describe_coverage(report),
        tab=report.name,
        figures=summarise_report(report),
        notes=list_notes(report),
        query_headings=QUERY_HEADINGS,
        queries=[describe_query(one) for one in report.queries],
        chart=chart,
        advice=report.advice,
        decisions=list(report.decisions.items()),
        changes=changes[-MOST_ACTIONS:][::-1],
        left_out=max(0, len(changes) - MOST_ACTIONS),
    )


def render_report(report: ApplicationReport) -> RenderableType:
    """Render the report for a terminal."""
    tiles = Table(box=None, show_header=False)
    for label, value, note in summarise_report(report):
        tiles.add_row(label, value, note)
    queries = Table(*QUERY_HEADINGS, box=None, header_style="bold")
    for one in report.queries:
        queries.add_row(*describe_query(one))
    said = [f"{one.what} ({one.why})" for one in report.advice] or ["nothing stands out"]
    title = Text(f"{report.name}: {describe_span(report)}\n{describe_coverage(report)}", style="bold")
    lines = [*list_notes(report), "what to change in the job:", *(f"  {line}" for line in said)]
    return Group(title, tiles, queries, Text("\n".join(lines)))


def summarise_report(report: ApplicationReport) -> list[Figure]:
    """Pick the few figures that tell how it went."""
    holding, cost = report.holding, report.cost
    tiles: list[Figure] = [
        ("core-hours held", f"{holding.core_hours:,.1f}", f"over {holding.hours:,.1f} hours"),
        (
            "at the peak size",
            f"{holding.peak_core_hours:,.1f}",
            f"core-hours of {holding.peak_cores:g} cores",
        ),
        ("not held", figures.share(holding.saved_share), "of the peak's core-hours"),
    ]
    if cost is not None:
        what = "cores and memory" if cost.with_memory else "cores"
        tiles.append(("cost", f"{cost.held:,.2f}", f"{what}; {cost.peak:,.2f} at the peak size"))
        tiles.append(("saved", f"{cost.peak - cost.held:,.2f}", "against the peak size"))
    if report.queries:
        worst = min(report.queries, key=lambda one: one.kept_up_share)
        tiles.append(("kept up", figures.share(worst.kept_up_share), f"of the time, {worst.name}"))
    undone = sum(one.rollback for one in report.actions)
    tiles.append(("changes", figures.count(len(report.actions)), f"{undone} undone"))
    return tiles


def describe_span(report: ApplicationReport) -> str:
    """Say for which days the report is."""
    days = [datetime.fromtimestamp(at).strftime("%Y-%m-%d") for at in (report.since, report.until)]
    return " to ".join(dict.fromkeys(days))


def describe_coverage(report: ApplicationReport) -> str:
    """Say how many runs it covers, and how much of the span was observed."""
    hours = (report.until - report.since) / 3600
    runs = figures.count_of(len(report.runs), "run")
    return f"{runs}, observed for {report.holding.hours:,.1f} of {hours:,.1f} hours"


def list_notes(report: ApplicationReport) -> list[str]:
    """Say what the report does not know, and how it would."""
    notes, first = [], report.observed_from
    if first is None:
        return ["Nothing was observed in this span."]
    if first - report.since > 3600 and report.actions and report.actions[0].intended_at < first:
        notes.append(
            f"Observations reach back to {figures.day_and_clock(first)}; older ones are gone. Set "
            f"retained_observations to {_count_needed(report):,} to keep as many as this span has."
        )
    if report.cost is None:
        notes.append("Set price_per_core_hour and price_per_gb_hour to see this in money.")
    if report.holding.gb_hours is None:
        notes.append("The memory of executors is not known for all runs, so only cores count.")
    return notes


def _count_needed(report: ApplicationReport) -> int:
    """Return how many observations the whole span has, in thousands."""
    lasted = report.holding.hours * 3600 / max(1, len(report.observations))
    return int(-(-(report.until - report.since) / max(lasted, 1.0) // 1000) * 1000)


def describe_query(one: QueryKept) -> tuple[str, ...]:
    """Return the cells of a query's row."""
    latency = _describe_pair(one.latency_seconds)
    if one.within_target_share is not None:
        latency += f"; within the target {figures.share(one.within_target_share)} of the time"
    backlog = f"{figures.count(one.largest_backlog_records)} records"
    return one.name, figures.share(one.kept_up_share), _describe_pair(one.batch_seconds), latency, backlog


def _describe_pair(pair: tuple[float, float] | None) -> str:
    return figures.ABSENT if pair is None else ", ".join(map(figures.seconds, pair))


def describe_action(one: ActionRecord) -> dict[str, Any]:
    """Return an action as the views show decisions: kind, sizes, reason, expectation and outcome."""
    kind = "resize" if one.settings else name_change(one.before, one.planned)
    outcome = None
    if one.status is not None:
        outcome = {"status": one.status.value, "seconds": one.seconds, "detail": one.detail}
    changed = "; ".join(f"{key} {old or 'unset'} → {new}" for key, (old, new) in one.settings.items())
    told: dict[str, Any] = {
        "at": one.intended_at,
        "kind": kind,
        "day": figures.day_and_clock(one.intended_at),
        "reason": f"undone: {one.reason}" if one.rollback else one.reason,
        "expected": one.expected.summary,
        "outcome": outcome,
        "settings": changed,
    }
    if kind == "move-state":
        return {**told, "bins": one.planned.get("bins")}
    return {**told, "from": one.before.get("executors"), "to": one.planned.get("executors")}


def thin_out(observations: Sequence[ObservationRecord], most: int = MOST_POINTS) -> list[dict[str, Any]]:
    """Return so many points at most for the charts: of windows side by side the one with most backlog."""
    points = [
        plain_point(TimelinePoint(one.at, one.parallelism, one.slots, one.queries)) for one in observations
    ]
    size = -(-len(points) // most) if points else 1
    groups = (points[at : at + size] for at in range(0, len(points), size))
    return [max(group, key=lambda point: float(point["backlog_records"] or 0.0)) for group in groups]
