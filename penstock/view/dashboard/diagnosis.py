"""The page of diagnoses: drop an event log on it or name its path, and get the report, with progress."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from penstock.errors import BadInput, NotFound
from penstock.units.figures import size
from penstock.view import figures
from penstock.view.dashboard.diagnosis_jobs import DiagnosisJob, Jobs
from penstock.view.dashboard.orders import read_body
from penstock.view.dashboard.pages import Page, dashboard_of, show_page
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.frame import render_markup

PATH = "/diagnosis"
LONGEST_PATH = 4096
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'none'"
)
"""A report is the same file that `penstock diagnose --html` writes, and holds its scripts and styles itself.

In a sandbox it has no origin: its scripts reach no page, no cookie and no address of this server.
"""


def jobs_of(request: Request) -> Jobs:
    """Return the diagnoses of this server."""
    return dashboard_of(request).diagnoses


def may_name_paths(request: Request) -> bool:
    """Tell whether paths of this machine may be named: only where nobody but its own users gets in."""
    access = dashboard_of(request).access
    return access.token is None and access.proxy_header is None


async def show(request: Request) -> Response:
    """Show where to drop a log, and the diagnoses so far."""
    jobs = jobs_of(request)
    return show_page(
        request,
        "dashboard/diagnosis.html.j2",
        "Diagnosis",
        PAGE,
        scripts=("diagnosis.js",),
        most=size(jobs.most_bytes),
        most_bytes=jobs.most_bytes,
        paths=may_name_paths(request),
        jobs=[describe_job(job) for job in jobs.list_jobs()],
    )


async def upload(request: Request) -> Response:
    """Take a log, and begin its diagnosis."""
    jobs, name = jobs_of(request), unquote(request.headers.get("x-penstock-name", "")) or "event log"
    length = request.headers.get("content-length", "")
    if length.isdecimal() and len(length) < 20 and int(length) > jobs.most_bytes:
        raise BadInput(f"the file is larger than {size(jobs.most_bytes)}: name its path")
    job = await jobs.receive(name, request.stream())
    return JSONResponse({"address": f"{PATH}/{job.key}"})


async def name_path(request: Request) -> Response:
    """Begin the diagnosis of a path of this machine."""
    if not may_name_paths(request):
        raise BadInput("paths can be named on loopback only, without a proxy: send the file")
    given = (await read_body(request)).get("path")
    if not isinstance(given, str) or not given.strip() or len(given) > LONGEST_PATH or "\0" in given:
        raise BadInput("path: the path of an event log is expected")
    path = Path(given.strip())
    try:
        path = path.expanduser()
        there = await asyncio.to_thread(path.exists)
    except (OSError, RuntimeError) as error:
        raise BadInput(f"{path}: cannot be looked at: {error}") from None
    if not there:
        raise BadInput(f"{path}: there is no such file or directory")
    return JSONResponse({"address": f"{PATH}/{jobs_of(request).diagnose(path).key}"})


async def show_job(request: Request) -> Response:
    """Show how far a diagnosis is, then its answer."""
    job = jobs_of(request).find(request.path_params["key"])
    return show_page(
        request,
        "dashboard/diagnosis_job.html.j2",
        job.name,
        PAGE,
        job=_render(job),
        key=job.key,
        ended=job.ended,
    )


async def stream_job(request: Request) -> Response:
    """Send how far a diagnosis is."""
    job = jobs_of(request).find(request.path_params["key"])
    return stream_parts(job, lambda: {"job": _render(job)})


async def show_report(request: Request) -> Response:
    """Return the report, in a sandbox."""
    job = jobs_of(request).find(request.path_params["key"])
    if job.ended is None or not job.answers:
        raise NotFound("the report is not there yet")
    headers = {"content-security-policy": REPORT_POLICY, "cross-origin-resource-policy": "cross-origin"}
    return FileResponse(job.page, media_type="text/html; charset=utf-8", headers=headers)


def describe_job(job: DiagnosisJob) -> dict[str, Any]:
    """Return a diagnosis as it is shown."""
    state = "at work" if job.ended is None else "failed" if job.error else "done"
    return {
        "name": job.name,
        "address": f"{PATH}/{job.key}",
        "report": f"{PATH}/{job.key}/report",
        "state": state,
        "progress": job.progress,
        "error": job.error,
        "answers": [{**one, "lines": one["answer"].splitlines()} for one in job.answers],
        "begun": figures.clock(job.begun),
        "took": figures.seconds(job.ended - job.begun) if job.ended is not None else "",
    }


def _render(job: DiagnosisJob) -> Markup:
    return render_markup("dashboard/diagnosis_state.html.j2", job=describe_job(job))


PAGE = Page(
    "diagnosis",
    "Diagnosis",
    PATH,
    (
        Route(PATH, show),
        Route(f"{PATH}/upload", upload, methods=["POST"]),
        Route(f"{PATH}/path", name_path, methods=["POST"]),
        Route(f"{PATH}/{{key}}", show_job),
        Route(f"{PATH}/{{key}}/events", stream_job),
        Route(f"{PATH}/{{key}}/report", show_report),
    ),
)
