"""The page of one application: its figures over time, its decisions, and the orders that it takes."""

from __future__ import annotations

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import NotFound
from penstock.view.dashboard.board import Seen
from penstock.view.dashboard.pages import Page, dashboard_of, show_page
from penstock.view.dashboard.standing import make_row
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.frame import render_markup

PATH = "/applications/{application}"


async def find_application(request: Request) -> Seen:
    """Return the application that an address names, as it stands now; NotFound where there is none."""
    board, key = dashboard_of(request).applications, request.path_params["application"]
    seen = board.find(key)
    if seen is None:
        await board.look()
        seen = board.find(key)
    if seen is None:
        raise NotFound(f"no application {key} is known here")
    return seen


async def show(request: Request) -> Response:
    """Show one application."""
    seen = await find_application(request)
    return show_page(
        request,
        "dashboard/application.html.j2",
        seen.name,
        PAGE,
        seen.key,
        summary=render_summary(seen),
    )


async def stream(request: Request) -> Response:
    """Send what changes on the page."""
    seen = await find_application(request)
    board = dashboard_of(request).applications
    return stream_parts(board, lambda: {"summary": render_summary(board.find(seen.key) or seen)})


def render_summary(seen: Seen) -> Markup:
    """Render the state and the few figures at the top."""
    return render_markup("dashboard/summary.html.j2", row=make_row(seen, ""))


PAGE = Page("application", "Overview", PATH, (Route(PATH, show), Route(PATH + "/events", stream)))
