"""The dashboard as a web application: its pages, files, errors, and the door before all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from penstock.errors import BadInput, NotFound, PenstockError
from penstock.runtime.control import PIPELINES
from penstock.settings.model import Settings
from penstock.view.dashboard import application, applications, diagnosis, fleet, memory, pipelines, state
from penstock.view.dashboard.access import Access, Door
from penstock.view.dashboard.assets import Assets
from penstock.view.dashboard.board import EVERY_SECONDS, SocketBoard
from penstock.view.dashboard.diagnosis_jobs import Jobs
from penstock.view.dashboard.fleet_watch import find_fleet
from penstock.view.dashboard.history import JournalHistory
from penstock.view.dashboard.pages import Dashboard, Page
from penstock.view.dashboard.whatif import WhatIfs

PAGES: tuple[Page, ...] = (
    applications.PAGE,
    application.PAGE,
    state.PAGE,
    memory.PAGE,
    pipelines.PAGE,
    fleet.PAGE,
    diagnosis.PAGE,
    applications.METRICS,
)
"""Each page is a file with its routes; the navigation has this order."""


def make_app(
    settings: Settings, access: Access, every: float = EVERY_SECONDS, diagnoses: Jobs | None = None
) -> Starlette:
    """Make the dashboard over the control sockets and the journal that the settings name."""
    directory = Path(settings.run.runtime_directory)
    boards = SocketBoard(directory, every), SocketBoard(directory / PIPELINES, every)
    dashboard = Dashboard(
        *boards,
        history=JournalHistory(settings.run.journal),
        whatifs=WhatIfs(boards[0]),
        fleet=find_fleet(settings.membership.report_to),
        diagnoses=diagnoses or Jobs(),
        settings=settings,
        access=access,
        assets=Assets(),
        pages=PAGES,
    )

    @asynccontextmanager
    async def begin(app: Starlette) -> AsyncIterator[None]:
        dashboard.diagnoses.open()
        if dashboard.fleet is not None:
            asyncio.get_running_loop().run_in_executor(None, dashboard.fleet.prepare)
        yield

    routes = [route for page in PAGES for route in page.routes]
    app = Starlette(
        routes=[*routes, Route("/static/{name}", dashboard.assets.serve)],
        middleware=[Middleware(Door, access=access)],
        exception_handlers={PenstockError: _tell_error, 404: _tell_missing},
        lifespan=begin,
    )
    app.state.dashboard = dashboard
    return app


def _tell_error(request: Request, error: Exception) -> Response:
    """Say in the answer what Penstock raised on purpose."""
    code = 404 if isinstance(error, NotFound) else 400 if isinstance(error, BadInput) else 409
    if request.method in ("GET", "HEAD"):
        return PlainTextResponse(f"{error}\n", code)
    return JSONResponse({"error": str(error)}, code)


def _tell_missing(request: Request, error: Exception) -> Response:
    return PlainTextResponse("there is no such page\n", 404)
