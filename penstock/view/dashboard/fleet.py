"""The page of a fleet: waste by team, who is under-sized, what was decided; searched and sorted here."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.errors import BadInput, NotFound, PenstockError
from penstock.fleet.listing import Question, parse_question, shorten
from penstock.fleet.status import HOUR
from penstock.view.dashboard import application, fleet_rows
from penstock.view.dashboard.fleet_watch import FleetWatch
from penstock.view.dashboard.pages import Page, dashboard_of, show_page
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.frame import render_markup

ROWS = "dashboard/fleet_rows.html.j2"


def fleet_of(request: Request) -> FleetWatch:
    """Return the fleet of the settings; NotFound where none is named."""
    known = dashboard_of(request).fleet
    if known is None:
        raise NotFound(
            "no fleet is named: start `penstock dashboard --fleet DIRECTORY`, or set report_to to a directory"
        )
    return known


async def show(request: Request) -> Response:
    """Show the fleet: the sums, the teams, and the page of the list that the address asks for."""
    try:
        fleet, question = fleet_of(request), parse_question(request.query_params)
        sums, rows = await asyncio.to_thread(_render, fleet, question)
        problem = ""
    except (BadInput, NotFound) as error:
        sums, rows, question, problem = Markup(""), Markup(""), Question(), str(error)
    return show_page(
        request,
        "dashboard/fleet.html.j2",
        "Fleet",
        PAGE,
        scripts=("fleet.js",),
        sums=sums,
        rows=rows,
        question=question,
        kinds=fleet_rows.KINDS,
        problem=problem,
    )


async def show_rows(request: Request) -> Response:
    """Return a page of the list alone, as markup."""
    fleet, question = fleet_of(request), parse_question(request.query_params)
    return JSONResponse({"rows": await asyncio.to_thread(_render_rows, fleet, question)})


async def show_application(request: Request) -> Response:
    """Show one application of the fleet, and where it runs here the way to its live page."""
    fleet, name = fleet_of(request), request.query_params.get("name", "")
    found = await asyncio.to_thread(_find_application, fleet, name)
    running = [one for one in await dashboard_of(request).applications.look() if one.name == name]
    address = application.PAGE.address(running[0].key) if running else ""
    return show_page(
        request, "dashboard/fleet_application.html.j2", shorten(name), PAGE, live=address, **found
    )


async def stream(request: Request) -> Response:
    """Send the sums when they change, and that the list has changed."""
    fleet = fleet_of(request)

    async def make() -> dict[str, Any]:
        return await asyncio.to_thread(_make_parts, fleet)

    return stream_parts(fleet, make)


def _make_parts(fleet: FleetWatch) -> dict[str, Any]:
    try:
        return {"sums": fleet.render_sums(), "fleet": fleet.version}
    except PenstockError as error:
        return {"sums": Markup('<p class="bad">{}</p>').format(error)}


def _render(fleet: FleetWatch, question: Question) -> tuple[Markup, Markup]:
    return fleet.render_sums(), _render_rows(fleet, question)


def _render_rows(fleet: FleetWatch, question: Question) -> Markup:
    listing, now = fleet.look(), time.time()
    return render_markup(ROWS, list=fleet_rows.describe_list(question, listing.page(question, now), now))


def _find_application(fleet: FleetWatch, name: str) -> dict[str, Any]:
    listing, now = fleet.look(), time.time()
    row = listing.find(name, now)
    if row is None:
        raise NotFound(f"the fleet has no application {shorten(name)!r}")
    mine = [one for one in fleet.directory.decisions(now - HOUR) if one["application"] == name]
    return {
        "row": fleet_rows.describe_row(row, now),
        "decisions": fleet_rows.describe_decisions(mine[-fleet_rows.MOST_DECISIONS :]),
    }


PAGE = Page(
    "fleet",
    "Fleet",
    fleet_rows.PATH,
    (
        Route(fleet_rows.PATH, show),
        Route(f"{fleet_rows.PATH}/rows", show_rows),
        Route(f"{fleet_rows.PATH}/application", show_application),
        Route("/events/fleet", stream),
    ),
)
