"""The metrics of all applications that run, as Prometheus scrapes them."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.runtime.telemetry.exposition import CONTENT_TYPE, expose
from penstock.view.dashboard.pages import Page, dashboard_of


async def show(request: Request) -> Response:
    """Write the metrics of all applications as they stand now; one that has ended has none."""
    seen = await dashboard_of(request).applications.look()
    statuses = [one.status for one in seen if one.status and not one.ended]
    return Response(await run_in_threadpool(expose, statuses), headers={"content-type": CONTENT_TYPE})


PAGE = Page("metrics", "", "/metrics", (Route("/metrics", show),))
