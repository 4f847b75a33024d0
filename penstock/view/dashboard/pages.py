"""A page of the dashboard, and how it reaches the data that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import BaseRoute

from penstock.view.dashboard.access import Access
from penstock.view.dashboard.assets import Assets
from penstock.view.dashboard.board import SocketBoard
from penstock.view.dashboard.diagnosis_jobs import Jobs
from penstock.view.dashboard.fleet_watch import FleetWatch
from penstock.view.dashboard.history import JournalHistory
from penstock.view.dashboard.whatif import WhatIfs
from penstock.view.frame import installed_version, render_template

if TYPE_CHECKING:
    from penstock.settings.model import Settings

FRAME_SCRIPTS = ("live.js",)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: where it is, what the navigation calls it, and the routes that serve it.

    With `{application}` in its path it is a page of each application, and is found beside the others there.
    Without a label it is not in the navigation.
    """

    name: str
    label: str
    path: str
    routes: Sequence[BaseRoute]

    @property
    def of_application(self) -> bool:
        """Whether every application has such a page."""
        return "{application}" in self.path

    def address(self, application: str = "") -> str:
        """Return where the page is, for this application."""
        return self.path.replace("{application}", quote(application, safe=""))


@dataclass(frozen=True, slots=True)
class Dashboard:
    """All that the pages share; `applications` and `pipelines` are the boards of their control sockets."""

    applications: SocketBoard
    pipelines: SocketBoard
    history: JournalHistory
    whatifs: WhatIfs
    fleet: FleetWatch | None
    diagnoses: Jobs
    settings: Settings
    access: Access
    assets: Assets
    pages: tuple[Page, ...]

    def close(self) -> None:
        """End what goes on in open pages, and all work."""
        for one in (self.applications, self.pipelines, self.fleet, self.diagnoses):
            if one is not None:
                one.close()


def dashboard_of(request: Request) -> Dashboard:
    """Return what the pages share."""
    return cast(Dashboard, request.app.state.dashboard)


def who_asks(request: Request) -> str:
    """Return the name of who asks, for the journal."""
    return str(request.state.who)


def show_page(
    request: Request,
    template: str,
    title: str,
    page: Page,
    application: str = "",
    scripts: Sequence[str] = (),
    **values: Any,
) -> HTMLResponse:
    """Render a page that extends `dashboard/frame.html.j2`; `scripts` are files of `static/`, in order."""
    shared = dashboard_of(request)
    text = render_template(
        template,
        title=title,
        page=page,
        application=application,
        scripts=[*FRAME_SCRIPTS, *scripts],
        navigation=[one for one in shared.pages if one.label and not one.of_application],
        tabs=[one for one in shared.pages if one.label and one.of_application] if application else [],
        asset=shared.assets.address,
        access=shared.access,
        version=installed_version(),
        **values,
    )
    return HTMLResponse(text)
