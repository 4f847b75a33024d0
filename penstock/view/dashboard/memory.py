"""The page of memory and cores: what executors use against their limits, and what Sage recommends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import PenstockError
from penstock.view import figures
from penstock.view.dashboard.application import PATH as APPLICATION
from penstock.view.dashboard.application import find_application
from penstock.view.dashboard.board import SocketBoard
from penstock.view.dashboard.pages import Page, dashboard_of, show_page
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.frame import render_markup

PATH = f"{APPLICATION}/memory"
NEARLY_FULL = 85.0
"""Percent of a limit from which a bar is drawn as a warning; Sage's own bound for the heap."""
LONG_COLLECTIONS = 10.0
"""Percent of the time in garbage collection that are drawn as a warning."""
UNKNOWN = (
    "What executors use of memory and CPU is measured only where something sizes them: run with the policy "
    "sage, or report to a fleet, with executor_metrics set to listen. Spark's own figures are shown."
)

Plain = Mapping[str, Any]


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


async def _render(board: SocketBoard, key: str) -> Markup:
    try:
        sizing = (await board.ask(key, "sizing"))["sizing"]
    except PenstockError as error:
        return render_markup("dashboard/memory_rows.html.j2", memory=None, trouble=str(error))
    return render_markup("dashboard/memory_rows.html.j2", memory=describe_memory(sizing), trouble="")


def describe_memory(sizing: Plain) -> dict[str, Any]:
    """Return the executors with their bars, the driver, what was lost, and what is recommended."""
    limits = sizing.get("limits")
    measured = any(one["heap_used_bytes"] is not None for one in sizing["executors"])
    return {
        "executors": [_describe_executor(one, limits) for one in sizing["executors"]],
        "limits": _describe_limits(limits),
        "driver": _describe_driver(sizing.get("driver"), limits),
        "losses": [
            {
                "at": figures.day_and_clock(one["at"]),
                "executor": one["executor"],
                "host": one["host"],
                "why": "out of heap" if one["out_of_heap"] else "killed for memory beside the heap",
            }
            for one in reversed(sizing["losses"])
        ],
        "recommended": _describe_recommended(sizing.get("recommended")),
        "unknown": "" if measured or not sizing["executors"] else UNKNOWN,
        "at": figures.clock(sizing.get("at")),
    }


def _describe_executor(one: Plain, limits: Plain | None) -> dict[str, Any]:
    heap = one["heap_used_bytes"] if one["heap_used_bytes"] is not None else one["heap_peak_bytes"]
    total = limits["heap_bytes"] + limits["overhead_bytes"] if limits else None
    cores = limits["cores"] if limits else one["slots"]
    share = one["gc_share"]
    return {
        "executor": one["executor"],
        "host": one["host"],
        "tasks": f"{figures.count(one['active_tasks'])} of {figures.count_of(one['slots'], 'slot')} busy",
        "heap": _measure(heap, limits["heap_bytes"] if limits else None, figures.size),
        "heap_note": "now" if one["heap_used_bytes"] is not None else "at its peak",
        "resident": _measure(one["resident_bytes"], total, figures.size),
        "cpu": _measure(one["cpu_cores"], cores, lambda cores: f"{cores:,.1f}"),
        "gc": {
            "text": figures.ABSENT if share is None else f"{share:.1%}",
            "percent": round(100 * min(1.0, share or 0.0), 1),
            "kind": "bad" if share is not None and 100 * share >= LONG_COLLECTIONS else "cool",
        },
        "spilled": figures.size(one["spilled_bytes"]) if one["spilled_bytes"] else "",
        "cached": figures.size(one["cached_bytes"]) if one["cached_bytes"] else "",
    }


def _measure(used: float | None, limit: float | None, write: Any) -> dict[str, Any]:
    """Return a figure against its limit, with how full that is; no bar where either is unknown."""
    if used is None:
        return {"text": figures.ABSENT, "of": "", "percent": None, "kind": ""}
    if not limit:
        return {"text": write(used), "of": "", "percent": None, "kind": ""}
    percent = round(100 * used / limit, 1)
    return {
        "text": write(used),
        "of": f"of {write(limit)}, {percent:.0f} %",
        "percent": min(100.0, percent),
        "kind": "bad" if percent >= NEARLY_FULL else "cool",
    }


def _describe_limits(limits: Plain | None) -> list[tuple[str, str, str]]:
    if limits is None:
        return []
    beside = f"{figures.size(limits['overhead_bytes'])} beside it"
    cpus = limits["task_cpus"]
    return [
        ("heap of an executor", figures.size(limits["heap_bytes"]), beside),
        ("cores of an executor", figures.count(limits["cores"]), f"{figures.count(cpus)} for a task"),
        ("heap of the driver", figures.size(limits["driver_heap_bytes"]), ""),
    ]


def _describe_driver(driver: Plain | None, limits: Plain | None) -> dict[str, Any] | None:
    if driver is None or driver["heap_used_bytes"] is None:
        return None
    return _measure(driver["heap_used_bytes"], limits["driver_heap_bytes"] if limits else None, figures.size)


def _describe_recommended(found: Plain | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "settings": [
            {"key": key, "value": value, "before": found["before"].get(key, "")}
            for key, value in found["settings"].items()
        ],
        "reason": found["reason"],
        "expected": found["expected"],
        "done": "A restart with these settings was asked for." if found["accepted"] else "",
        "why_not": "" if found["accepted"] else found["verdict"],
        "guardrail": found["guardrail"] or "",
        "at": figures.clock(found["at"]),
    }


PAGE = Page("memory", "Memory and cores", PATH, (Route(PATH, show), Route(f"{PATH}/events", stream)))
