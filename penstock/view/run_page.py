"""The page of one application's run: figures, charts over time, what batches waited for, decisions."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

from penstock.runtime.status import describe_mode
from penstock.view import figures
from penstock.view.charts import (
    Points,
    add_line,
    add_markers,
    draw_critical_path,
    dress_timelines,
    list_analysed,
    local_time,
    make_timelines,
    place_legend,
    wrap_hover,
)
from penstock.view.colours import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from penstock.view.frame import Figure, draw_chart, render_page
from penstock.view.words import describe_change, describe_critical_path, describe_effect, name_decision

TITLES = ("Rate", "Backlog", "Batch time", "Slots")
UNITS = ("records per second", "records", "seconds", "slots")
CHANGES = {"scale-out": (GREEN, "triangle-up"), "scale-in": (BLUE, "triangle-down")}
OTHERS = {"move-state": (PURPLE, "diamond"), "rejected": (ORANGE, "x"), "failed": (RED, "x")}

Status = Mapping[str, Any]


def render_run_page(status: Status) -> str:
    """Render the page of one status."""
    recent, decisions = status.get("recent", ()), status.get("decisions", ())
    shown = list_analysed(status.get("queries", ()))
    return render_page(
        "run.html.j2",
        title=str(status.get("name") or status["application"]),
        subtitle=_subtitle(status),
        figures=summarise_run(status),
        chart=draw_chart(draw_timeline(recent, decisions), "timeline"),
        critical=[text for text in map(describe_critical_path, shown) if text],
        critical_chart=draw_chart(draw_critical_path(shown, recent)) if shown else "",
        decisions=[{"kind": "", "reason": "", "at": None, **one} for one in decisions],
    )


def summarise_run(status: Status) -> list[Figure]:
    """Pick the few figures that tell how the run went."""
    recent = status.get("recent", ())
    changes = [one["kind"] for one in status.get("decisions", ()) if one.get("kind") in CHANGES]
    held = [point["slots_held"] for point in recent if point.get("slots_held") is not None]
    peak: Status = max(recent, key=lambda point: float(point.get("backlog_records") or 0), default={})
    when = f"at {figures.clock(peak['at'])}" if peak.get("backlog_records") else "records"
    between = f"between {figures.count(min(held))} and {figures.count(max(held))}" if held else ""
    out = changes.count("scale-out")
    return [
        ("offered now", figures.rate(_last(recent, "offered_per_second")), "records"),
        ("observed now", figures.rate(_last(recent, "observed_per_second")), "records"),
        ("largest backlog", figures.count(peak.get("backlog_records")), when),
        ("slots held", figures.count(status.get("slots")), between),
        ("slot-hours", f"{sum_slot_seconds(recent) / 3600:,.2f}", "over the span shown"),
        ("changes", figures.count(len(changes)), f"{out} out, {len(changes) - out} in"),
    ]


def sum_slot_seconds(recent: Points) -> float:
    """Sum the slots held over time; each count lasts until the next point."""
    return float(sum((b["at"] - a["at"]) * (a.get("slots_held") or 0) for a, b in pairwise(recent)))


def draw_timeline(recent: Points, decisions: Points) -> go.Figure:
    """Draw four charts over one axis of time, with every change of size marked in all of them."""
    figure = make_timelines(TITLES, row_heights=[0.3, 0.2, 0.22, 0.28])
    at = [local_time(point) for point in recent]

    def add(row: int, name: str, key: str, hover: str, more: Status | None = None, **look: Any) -> None:
        values = [point.get(key) for point in recent]
        add_line(figure, row, name, at, values, hover, {"legend": _legend(row), **(more or {})}, **look)

    add(1, "offered", "offered_per_second", "%{y:,.0f} records/s", color=BLUE, dash="dot")
    add(1, "observed", "observed_per_second", "%{y:,.0f} records/s", color=GREEN)
    shade = {"fill": "tozeroy", "fillcolor": "rgba(217,130,43,0.16)"}
    add(2, "backlog", "backlog_records", "%{y:,.0f} records", shade, color=ORANGE)
    if any(point.get("period_seconds") is not None for point in recent):
        add(3, "trigger", "period_seconds", "%{y:.1f} s", color=GREY, dash="dash", width=1.5)
    # a batch longer than a window leaves windows without one: the line goes on over them
    add(3, "batch", "batch_seconds", "%{y:.1f} s", {"connectgaps": True}, color=PURPLE)
    steps: dict[str, Any] = {"shape": "hv", "width": 2.5}
    add(4, "held", "slots_held", "%{y:,.0f} slots", color=BLUE, **steps)
    add(4, "needed", "slots_needed", "%{y:,.0f} slots", color=ORANGE, dash="dot", **steps)
    _mark_decisions(figure, recent, decisions)
    margin = {"l": 70, "r": 24, "t": 40, "b": 44}
    dress_timelines(figure, UNITS, "local time", height=980, margin=margin)
    for row in range(1, len(UNITS) + 1):
        top = figure.layout["yaxis" if row == 1 else f"yaxis{row}"].domain[1]
        figure.update_layout({_legend(row): place_legend(top)})
    return figure


def _legend(row: int) -> str:
    return "legend" if row == 1 else f"legend{row}"


def _mark_decisions(figure: go.Figure, recent: Points, decisions: Points) -> None:
    """Draw a thin line through all charts for each change, and a marker among the slots with the reason."""
    for one in decisions:
        if one.get("kind") in CHANGES:
            line = {"color": CHANGES[one["kind"]][0], "width": 1, "dash": "dot"}
            figure.add_vline(x=local_time(one), line=line, opacity=0.7)
    for kind, (color, symbol) in {**CHANGES, **OTHERS}.items():
        marked = [one for one in decisions if one.get("kind") == kind]
        if marked:
            at, told = [local_time(one) for one in marked], [_hover(one) for one in marked]
            edge = {"color": "#ffffff", "width": 1.5}
            marker = {"color": color, "symbol": symbol, "size": 12, "line": edge}
            held = [_held_at(recent, one["at"]) for one in marked]
            name = name_decision({"kind": kind})
            add_markers(figure, 4, at, held, told, marker, name=name, legend=_legend(4))


def _held_at(recent: Points, at: float) -> float:
    before = [point["slots_held"] for point in recent if point["at"] <= at and point.get("slots_held")]
    return float(before[-1]) if before else 0.0


def _hover(decision: Mapping[str, Any]) -> str:
    done = f"{name_decision(decision)} {describe_change(decision)}"
    reason, effect = str(decision.get("reason", "")), describe_effect(decision)
    heading = f"<b>{done}</b> at {figures.clock(decision['at'])}"
    return "<br>".join([heading, *wrap_hover(reason), *wrap_hover(effect)])


def _subtitle(status: Status) -> str:
    recent = status.get("recent", ())
    span = figures.seconds(recent[-1]["at"] - recent[0]["at"]) if recent else "nothing observed yet"
    until = f", until {figures.day_and_clock(recent[-1]['at'])}" if recent else ""
    return f"{status['application']} · policy {status['policy']} · {describe_mode(status)} · {span}{until}"


def _last(recent: Points, key: str) -> float | None:
    known = [point[key] for point in recent if point.get(key) is not None]
    return known[-1] if known else None
