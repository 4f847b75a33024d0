"""The page of memory and cores: what executors use against their limits, and what Sage recommends."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import PenstockError
from penstock.view.dashboard.application import PATH as APPLICATION
from penstock.view.dashboard.application import find_application
from penstock.view.dashboard.board import Board
from penstock.view.dashboard.memory_rows import describe_memory
from penstock.view.dashboard.pages import Page, dashboard_of, show_page
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.frame import render_markup

PATH = f"{APPLICATION}/memory"


async def show(request: Request) -> Response:
    """Show memory and cores."""
    seen = await find_application(request)
    memory = await _render(dashboard_of(request).applications, seen.key)
    return show_page(request, "dashboard/memory.html.j2", seen.name, PAGE, seen.key, memory=memory)


async def stream(request: Request) -> Response:
    """Send what changes on the page."""
    seen = await find_application(request)
    board = dashboard_of(request).applications

    async def make() -> dict[str, Any]:
        return {"memory": await _render(board, seen.key)}

    return stream_parts(board, make)


async def _render(board: Board, key: str) -> Markup:
    try:
        sizing = (await board.ask(key, "sizing"))["sizing"]
    except PenstockError as error:
        return render_markup("dashboard/memory_rows.html.j2", memory=None, trouble=str(error))
    return render_markup("dashboard/memory_rows.html.j2", memory=describe_memory(sizing), trouble="")


PAGE = Page("memory", "Memory and cores", PATH, (Route(PATH, show), Route(f"{PATH}/events", stream)))
