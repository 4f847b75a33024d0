"""All applications: the page of those that run, live, and that ran, and their metrics for Prometheus."""

from __future__ import annotations

from functools import lru_cache

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.pipeline.metrics import tell_as_application
from penstock.runtime.telemetry.exposition import CONTENT_TYPE, expose
from penstock.view.dashboard import application
from penstock.view.dashboard.history import FormerRow
from penstock.view.dashboard.pages import Dashboard, Page, dashboard_of, show_page
from penstock.view.dashboard.standing import ApplicationRow, make_row
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.frame import render_markup


async def show(request: Request) -> Response:
    """Show all applications as they stand now."""
    shared = dashboard_of(request)
    await shared.applications.look()
    parts = await render_parts(shared)
    return show_page(request, "dashboard/applications.html.j2", "Applications", PAGE, **parts)


async def stream(request: Request) -> Response:
    """Send what changes on the page."""
    shared = dashboard_of(request)
    return stream_parts(shared.applications, lambda: render_parts(shared))


async def render_parts(shared: Dashboard) -> dict[str, Markup]:
    """Render both tables."""
    seen = shared.applications.list_seen()
    running = frozenset(one.application for one in seen)
    former = await run_in_threadpool(shared.history.list_rows, running)
    rows = tuple(make_row(one, application.PAGE.address(one.key)) for one in seen)
    return {"running": render_running(rows), "former": render_former(tuple(former))}


# most rounds bring nothing new, and writing a table takes longer than to see that


@lru_cache(maxsize=4)
def render_running(rows: tuple[ApplicationRow, ...]) -> Markup:
    """Render the table of applications that run, or ran while they were watched."""
    return render_markup("dashboard/running.html.j2", rows=rows)


@lru_cache(maxsize=4)
def render_former(rows: tuple[FormerRow, ...]) -> Markup:
    """Render the table of applications of the past."""
    return render_markup("dashboard/former.html.j2", rows=rows, address=application.PAGE.address)


async def show_metrics(request: Request) -> Response:
    """Write the metrics of all applications and pipelines as they stand now; what has ended has none."""
    shared = dashboard_of(request)
    seen, pipelines = await shared.applications.look(), await shared.pipelines.look()
    statuses = [one.status for one in seen if one.status and not one.ended]
    statuses += [tell_as_application(one.status) for one in pipelines if one.status and not one.ended]
    return Response(await run_in_threadpool(expose, statuses), headers={"content-type": CONTENT_TYPE})


PAGE = Page("applications", "Applications", "/", (Route("/", show), Route("/events/applications", stream)))
METRICS = Page("metrics", "", "/metrics", (Route("/metrics", show_metrics),))
