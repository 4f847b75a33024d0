"""The page of a fleet: waste by team, who is under-sized, what was decided; searched and sorted here."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.errors import NotFound, PenstockError
from penstock.fleet.listing import FleetListing, Question, parse_question, shorten
from penstock.fleet.places import STATUS, parse_place
from penstock.fleet.remembered import RememberedFleet
from penstock.fleet.status import HOUR, summarise_fleet
from penstock.view.dashboard import application, fleet_rows
from penstock.view.dashboard.pages import Page, dashboard_of, show_page
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.fleet import list_figures
from penstock.view.frame import render_markup

EVERY_SECONDS = 5.0
"""A fleet plays a round every ten seconds or so."""
SUMS_SECONDS = 60.0
"""Sums of files that stay the same change as well, when an application falls silent."""
ROWS = "dashboard/fleet_rows.html.j2"
SUMS = "dashboard/fleet_sums.html.j2"


class FleetWatch:
    """A fleet's directory as it was last read; reading is done in threads, by one at a time."""

    def __init__(self, directory: RememberedFleet) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._read: tuple[object, int, FleetListing] | None = None
        self._sums: tuple[int, float, Markup] = (0, 0.0, Markup(""))
        self.version = 0

    def render_sums(self) -> Markup:
        """Return the sums, teams and decisions as markup; made anew when a file has changed."""
        listing, now = self.look(), time.time()
        version, made_at, made = self._sums
        if version != self.version or not 0 <= now - made_at < SUMS_SECONDS:
            made = _render_sums(self.directory, listing, now)
            self._sums = self.version, now, made
        return made

    def look(self) -> FleetListing:
        """Return the list; made anew only when a file has changed."""
        with self._lock:
            table, decisions = self.directory.status(), self.directory.decisions(time.time() - HOUR)
            if self._read is None or self._read[0] is not table or self._read[1] != len(decisions):
                known = STATUS.empty_table() if table is None else table
                former = self._read[2] if self._read is not None else None
                self._read = table, len(decisions), FleetListing.of(known, decisions, former)
                self.version += 1
            return self._read[2]

    async def follow(self) -> AsyncIterator[None]:
        """Come back from time to time."""
        while True:
            yield
            await asyncio.sleep(EVERY_SECONDS)


def fleet_of(request: Request) -> FleetWatch:
    """Return the fleet of the settings; NotFound where none is named."""
    known: FleetWatch | None = getattr(request.app.state, "fleet", None)
    if known is not None:
        return known
    named = dashboard_of(request).settings.membership.report_to
    place = parse_place(named) if named else None
    if not isinstance(place, Path):
        raise NotFound(
            "no fleet is named: start `penstock dashboard --fleet DIRECTORY`, or set report_to to a directory"
        )
    request.app.state.fleet = made = FleetWatch(RememberedFleet(place))
    return made


async def show(request: Request) -> Response:
    """Show the fleet: the sums, the teams, and the page of the list that the address asks for."""
    try:
        fleet, question = fleet_of(request), parse_question(request.query_params)
        sums, rows = await asyncio.to_thread(_render, fleet, question)
        problem = ""
    except NotFound as error:
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


def _render_sums(directory: RememberedFleet, listing: FleetListing, now: float) -> Markup:
    status = summarise_fleet(directory, now)
    return render_markup(
        SUMS,
        figures=list_figures(status),
        problem=status["overrides_problem"],
        teams=fleet_rows.describe_teams(listing.sum_teams(now)),
        decisions=fleet_rows.describe_decisions(status["decisions"]),
        rules=", ".join(f"{rule} {count}" for rule, count in status["decided_last_hour"].items()),
    )


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
