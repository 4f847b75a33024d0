"""The page of one application: its figures over time, its decisions, what other sizes would bring, orders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.errors import BadInput, NotFound
from penstock.view.dashboard.board import Seen
from penstock.view.dashboard.orders import show_overrides, take_order
from penstock.view.dashboard.pages import Page, dashboard_of, show_page
from penstock.view.dashboard.series import (
    WORDS_OF_MARKS,
    describe_decision,
    gather_series,
    gather_waits,
    list_decisions,
)
from penstock.view.dashboard.standing import make_row
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.frame import render_markup

PATH = "/applications/{application}"


async def find_application(request: Request) -> Seen:
    """Return the application that an address names, running or of the past; NotFound where there is none."""
    shared, key = dashboard_of(request), request.path_params["application"]
    seen = shared.applications.find(key)
    if seen is None:
        await shared.applications.look()
        seen = shared.applications.find(key)
    if seen is None:
        status = await run_in_threadpool(shared.history.find_status, key)
        if status is None:
            raise NotFound(f"no application {key} is known here")
        seen = Seen(key, Path(), status["now"], status, ended=True)
    return seen


def takes_orders(request: Request) -> bool:
    """Tell whether pages may offer to change something."""
    return not dashboard_of(request).access.read_only


async def show(request: Request) -> Response:
    """Show one application."""
    seen = await find_application(request)
    return show_page(
        request,
        "dashboard/application.html.j2",
        seen.name,
        PAGE,
        seen.key,
        scripts=("styles.js", "plotly.min.js", "charts.js", "application.js"),
        live=dashboard_of(request).applications.find(seen.key) is not None,
        seen=seen,
        words=WORDS_OF_MARKS,
        **render_parts(seen, takes_orders(request)),
        decisions=render_decisions(seen),
    )


def render_controls(seen: Seen, orders: bool) -> Markup:
    """Render the buttons for orders, where they can be given."""
    bounds = seen.status.get("bounds") or {}
    return render_markup(
        "dashboard/controls.html.j2",
        orders=orders and not seen.ended and bool(seen.status),
        paused=bool(seen.status.get("paused")),
        executors=seen.status.get("executors") or 1,
        least=bounds.get("least", 1),
        most=bounds.get("most", ""),
    )


def render_parts(seen: Seen, orders: bool) -> dict[str, Markup]:
    """Render what changes on the page, beside the charts."""
    return {
        "summary": render_markup("dashboard/summary.html.j2", row=make_row(seen, "")),
        "controls": render_controls(seen, orders),
        "warnings": render_markup(
            "dashboard/warnings.html.j2",
            warnings=seen.status.get("warnings", ()),
            advice=seen.status.get("advice", ()),
        ),
    }


def render_decisions(seen: Seen) -> Markup:
    """Render the table of decisions."""
    return render_markup("dashboard/decisions.html.j2", decisions=list_decisions(seen.status))


async def stream(request: Request) -> Response:
    """Send what changes on the page."""
    first, shared = await find_application(request), dashboard_of(request)
    drawn: dict[str, Any] = {}
    orders = takes_orders(request)

    async def make() -> Mapping[str, Any]:
        seen = shared.applications.find(first.key) or first
        version = seen.status.get("timeline")
        if not drawn or drawn["version"] != version:
            series, waits = gather_series(seen.status), gather_waits(seen.status)
            parts = {"series": series, "waits": waits, "decisions": render_decisions(seen)}
            drawn.update(version=version, parts=parts)
        return {**render_parts(seen, orders), **drawn["parts"], "whatif": await shared.whatifs.find(seen)}

    return stream_parts(shared.applications, make)


async def show_data(request: Request) -> Response:
    """Answer the data of the charts once, as for an application of the past."""
    seen = await find_application(request)
    return JSONResponse(
        {"series": gather_series(seen.status), "waits": gather_waits(seen.status), "whatif": {}}
    )


async def show_explanation(request: Request) -> Response:
    """Answer the whole explanation of the decision that was taken at a moment."""
    seen = await find_application(request)
    at = _read_moment(request.path_params["at"])
    told = await run_in_threadpool(dashboard_of(request).history.explain_action, seen.application, at)
    decisions = seen.status.get("decisions", ())
    known = min(decisions, key=lambda one: abs(one["at"] - at), default=None)
    if told is None and (known is None or abs(known["at"] - at) > 1):
        raise NotFound("no decision of that moment is known")
    row = describe_decision(known) if known is not None else {"word": "action", "change": "", "when": ""}
    title = " ".join(part for part in (row["word"], row["change"], f"at {row['when']}") if part)
    return JSONResponse({"title": title, "text": told or _tell_briefly(row)})


def _tell_briefly(row: Mapping[str, Any]) -> str:
    effect = f"\n{row['effect']}" if row["effect"] else ""
    return f"{row['reason']}{effect}"


def _read_moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{text!r} is no moment") from None


PAGE = Page(
    "application",
    "Overview",
    PATH,
    (
        Route(PATH, show),
        Route(PATH + "/events", stream),
        Route(PATH + "/data", show_data),
        Route(PATH + "/overrides", show_overrides),
        Route(PATH + "/explanations/{at}", show_explanation),
        Route(PATH + "/orders/{order}", take_order, methods=["POST"]),
    ),
)
