"""The page of pipelines: each as a live graph with rates, backlog and parallelism."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.view.dashboard.board import Seen
from penstock.view.dashboard.pages import Page, dashboard_of, show_page
from penstock.view.dashboard.pipeline_map import describe_pipeline
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.frame import render_markup

PATH = "/pipelines"


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


PAGE = Page("pipelines", "Pipelines", PATH, (Route(PATH, show), Route("/events/pipelines", stream)))
