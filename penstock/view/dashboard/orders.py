"""Orders from the pages: each is checked, carried out, and in the journal with who gave it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from penstock.errors import BadInput, NotFound
from penstock.journal.overrides import add_override, recall_overrides
from penstock.journal.store import open_journal
from penstock.view.dashboard.board import Seen
from penstock.view.dashboard.pages import dashboard_of, who_asks

LARGEST_BODY = 64 * 1024
LONGEST_WORD = 200


async def take_order(request: Request) -> Response:
    """Carry out one order and answer with what became of it."""
    shared = dashboard_of(request)
    key, order = request.path_params["application"], request.path_params["order"]
    seen, body, by = shared.applications.find(key), await read_body(request), who_asks(request)
    if seen is None:
        raise NotFound(f"no application {key} is known here")
    answer: Mapping[str, Any]
    if order in ("pause", "resume"):
        answer = await shared.applications.ask(key, order, by=by)
    elif order == "scale":
        answer = await _scale(request, seen, body, by)
    elif order == "override":
        answer = await run_in_threadpool(_override, shared.settings.run.journal, seen, body, by)
    else:
        raise NotFound(f"no order is called {order!r}")
    await shared.applications.look_again(key)
    return JSONResponse({name: answer[name] for name in answer if name not in ("ok", "version")})


async def _scale(request: Request, seen: Seen, body: Mapping[str, Any], by: str) -> Mapping[str, Any]:
    """Set a size; so that it stays, the autopilot is paused first where that is wanted."""
    board = dashboard_of(request).applications
    if body.get("pause"):
        await board.ask(seen.key, "pause", by=by)
    return await board.ask(seen.key, "scale", executors=body.get("executors"), by=by)


def _override(journal: str, seen: Seen, body: Mapping[str, Any], by: str) -> Mapping[str, Any]:
    pins, vetoes = _read_words(body, "pin"), _read_words(body, "veto")
    if not (pins or vetoes or body.get("clear")):
        raise BadInput("nothing is pinned, vetoed or cleared")
    opened = open_journal(journal)
    try:
        said = add_override(opened, time.time(), seen.name, by, pins, vetoes, None, bool(body.get("clear")))
    finally:
        opened.close()
    return {key: said[key] for key in ("pin", "veto", "by")}


async def show_overrides(request: Request) -> Response:
    """Answer what is pinned and vetoed now."""
    shared = dashboard_of(request)
    seen = shared.applications.find(request.path_params["application"])
    name = seen.name if seen is not None else ""
    return JSONResponse(await run_in_threadpool(_recall, shared.settings.run.journal, name))


def _recall(journal: str, name: str) -> dict[str, Any]:
    opened = open_journal(journal)
    try:
        said = recall_overrides(opened, name)
    finally:
        opened.close()
    return {key: said[key] for key in ("pin", "veto", "by")}


def _read_words(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Read words between commas or blanks."""
    written = body.get(name, "")
    if not isinstance(written, str) or len(written) > LONGEST_WORD:
        raise BadInput(f"{name}: a short text is expected")
    return tuple(written.replace(",", " ").split())


async def read_body(request: Request) -> Mapping[str, Any]:
    """Read the JSON object of an order; BadInput where it is none, or too long."""
    collected = b""
    async for chunk in request.stream():
        collected += chunk
        if len(collected) > LARGEST_BODY:
            raise BadInput(f"an order is longer than {LARGEST_BODY} bytes")
    try:
        body = orjson.loads(collected or b"{}")
    except orjson.JSONDecodeError as error:
        raise BadInput(f"an order is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadInput("an order is not a JSON object")
    return body
