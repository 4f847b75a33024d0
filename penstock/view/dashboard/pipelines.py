"""The page of pipelines: each as a live graph with rates, backlog and parallelism."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import BadInput
from penstock.pipeline.topics import Layout, lay_out_status
from penstock.units.texts import cut_text
from penstock.view import figures
from penstock.view.dashboard.board import Seen
from penstock.view.dashboard.pages import Page, dashboard_of, show_page
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.frame import render_markup
from penstock.view.pipeline import (
    describe_last_decision,
    find_topic_rate,
    list_complaints,
    list_pairs,
    place_drawing,
    write_number,
)

PATH = "/pipelines"
WIDTHS = 5
"""Strengths of an arrow, beside that of one whose rate is not known."""
LONGEST_NAME = 60

Plain = Mapping[str, Any]


async def show(request: Request) -> Response:
    """Show all pipelines that run."""
    seen = await dashboard_of(request).pipelines.look()
    return show_page(
        request, "dashboard/pipelines.html.j2", "Pipelines", PAGE, pipelines=render_pipelines(seen)
    )


async def stream(request: Request) -> Response:
    """Send what changes on the page."""
    board = dashboard_of(request).pipelines
    return stream_parts(board, lambda: {"pipelines": render_pipelines(board.list_seen())})


def render_pipelines(seen: Sequence[Seen]) -> Markup:
    """Render every pipeline; one that does not answer is shown as it was."""
    shown = [
        {
            "key": one.key,
            "name": one.name,
            "trouble": one.trouble or "",
            "pipeline": describe_pipeline(one.status) if one.status.get("functions") else None,
        }
        for one in seen
    ]
    return render_markup("dashboard/pipeline_maps.html.j2", shown=shown)


def describe_pipeline(status: Plain) -> dict[str, Any]:
    """Return what the page shows of one pipeline."""
    functions = {cut_text(str(name), LONGEST_NAME): one for name, one in status["functions"].items()}
    complaints = list_complaints(functions)
    return {
        "name": str(status["pipeline"]),
        "note": _describe_note(status),
        "said": describe_last_decision(status) or "",
        "problems": [
            *(complaints.plain.splitlines() if complaints else []),
            *filter(None, [status.get("error")]),
        ],
        "drawing": _draw(functions),
        "rows": [_describe_function(name, one) for name, one in functions.items()],
    }


def find_strength(rate: float | None, most: float) -> int:
    """Return how strong an arrow is drawn: by the logarithm, for rates differ by powers of ten."""
    if rate is None or not math.isfinite(rate) or most <= 0:
        return 0
    if rate <= 0:
        return 1
    return max(1, min(WIDTHS, WIDTHS + math.floor(math.log10(rate / most))))


def _draw(functions: Plain) -> dict[str, Any] | None:
    try:
        layout = lay_out_status(functions)
    except (BadInput, KeyError, TypeError):
        return None
    drawing = place_drawing(layout, functions)
    rates = _find_rates(layout, functions)
    most = max((rate for rate in rates if rate is not None and math.isfinite(rate)), default=0.0)
    arrows = [
        {
            "path": path,
            "strength": find_strength(rate, most),
            "title": f"{start} → {end}: {write_number(rate)}/s",
        }
        for path, rate, (start, end) in zip(drawing["paths"], rates, list_pairs(layout), strict=True)
    ]
    return {**drawing, "arrows": arrows}


def _find_rates(layout: Layout, functions: Plain) -> list[float | None]:
    """Return the records a second on every arrow: what comes to the topic, or what the function writes."""
    return [
        functions[start].get("written_per_second")
        if start in functions
        else find_topic_rate(layout, functions, start)
        for start, _ in list_pairs(layout)
    ]


def _describe_note(status: Plain) -> str:
    leads = "runs here" if status.get("leads") else f"stands by; {status.get('leader') or 'nobody'} leads"
    return f"{status.get('policy', '')} · {leads}"


def _describe_function(name: str, one: Plain) -> dict[str, Any]:
    size = one.get("parallelism")
    return {
        "name": name,
        "instances": figures.ABSENT if not size else str(size),
        "limits": "pinned by hand"
        if one.get("pinned")
        else f"of {one.get('least', 1)}–{one.get('most', '')}",
        "arrived": write_number(one.get("arrival_per_second")),
        "served": write_number(one.get("observed_per_second")),
        "written": write_number(one.get("written_per_second")),
        "backlog": write_number(one.get("backlog_records")),
        "busy": figures.share(one.get("busy_ratio")),
        "percent": round(100 * min(1.0, one.get("busy_ratio") or 0.0), 1),
        "kind": "bad" if (one.get("busy_ratio") or 0.0) >= 0.9 else "cool",
        "dead": write_number(one.get("dead_letters")) if one.get("dead_letters") else "",
    }


PAGE = Page("pipelines", "Pipelines", PATH, (Route(PATH, show), Route("/events/pipelines", stream)))
