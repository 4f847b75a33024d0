"""The page of all applications: those that run, live, and those that ran."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.view.dashboard import application
from penstock.view.dashboard.board import Seen
from penstock.view.dashboard.pages import Page, dashboard_of, show_page
from penstock.view.dashboard.standing import make_row
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.frame import render_markup


async def show(request: Request) -> Response:
    """Show all applications as they stand now."""
    seen = await dashboard_of(request).applications.look()
    return show_page(
        request,
        "dashboard/applications.html.j2",
        "Applications",
        PAGE,
        running=render_running(seen),
        former="",
    )


async def stream(request: Request) -> Response:
    """Send what changes on the page."""
    board = dashboard_of(request).applications
    return stream_parts(board, lambda: {"running": render_running(board.list_seen())})


def render_running(seen: Sequence[Seen]) -> Markup:
    """Render the table of applications."""
    rows = [make_row(one, application.PAGE.address(one.key)) for one in seen]
    return render_markup("dashboard/running.html.j2", rows=rows)


PAGE = Page("applications", "Applications", "/", (Route("/", show), Route("/events/applications", stream)))
