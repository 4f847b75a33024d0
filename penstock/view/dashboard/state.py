"""The page of an application's state: the map of bins, live while it moves, and the orders that move it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.dataflow.moves import Strategy
from penstock.errors import BadInput, PenstockError
from penstock.view.dashboard.application import PATH as APPLICATION
from penstock.view.dashboard.application import find_application
from penstock.view.dashboard.bin_map import MEASURES, Place, describe_map, describe_plans, find_places
from penstock.view.dashboard.board import SocketBoard
from penstock.view.dashboard.orders import read_body
from penstock.view.dashboard.pages import Page, dashboard_of, show_page, who_asks
from penstock.view.dashboard.streaming import stream_parts
from penstock.view.frame import render_markup

PATH = f"{APPLICATION}/state"
EVERY_SECONDS = 5.0
"""To tell where state lies the driver looks at the files of all bins: not with every round."""
MOVING_SECONDS = 1.0
JUST_MOVED_SECONDS = 10.0

Plain = Mapping[str, Any]


class StateWatch:
    """The state of one application as it was last asked for, however many browsers look at it."""

    def __init__(self, board: SocketBoard, key: str) -> None:
        self._board, self._key = board, key
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._state: Plain | None = None
        self._migration: Plain | None = None
        self._trouble = ""
        self._places: dict[Place, str] = {}
        self._moved: dict[Place, float] = {}

    async def render(self, fresh: bool = False) -> Markup:
        """Return the map as markup; asked anew when it is time, or at once."""
        async with self._asking:
            now = time.monotonic()
            moving = self._migration is not None and self._migration.get("state") == "moving"
            if fresh or now - self._asked_at >= (MOVING_SECONDS if moving else EVERY_SECONDS):
                await self._ask(now)
            moved = [place for place, at in self._moved.items() if now - at < JUST_MOVED_SECONDS]
        shown = None if self._state is None else describe_map(self._state, self._migration, moved)
        return render_markup("dashboard/state_map.html.j2", map=shown, trouble=self._trouble)

    async def _ask(self, now: float) -> None:
        self._asked_at, self._trouble = now, ""
        try:
            self._state = (await self._board.ask(self._key, "state"))["state"]
            self._migration = (await self._board.ask(self._key, "migration"))["migration"]
        except PenstockError as error:
            self._trouble = str(error)
            return
        places = find_places(self._state)
        for place, worker in places.items():
            if self._places.get(place, worker) != worker:
                self._moved[place] = now
        self._places = places


def watch_of(request: Request, key: str) -> StateWatch:
    """Return the watch over the state of an application."""
    shared = request.app.state
    if not hasattr(shared, "states"):
        shared.states = {}
    watches: dict[str, StateWatch] = shared.states
    return watches.setdefault(key, StateWatch(dashboard_of(request).applications, key))


async def show(request: Request) -> Response:
    """Show where the state lies."""
    seen = await find_application(request)
    return show_page(
        request,
        "dashboard/state.html.j2",
        seen.name,
        PAGE,
        seen.key,
        scripts=("state.js",),
        map=await watch_of(request, seen.key).render(),
        measures=[name for name, _ in MEASURES],
        strategies=[one.value for one in Strategy],
    )


async def stream(request: Request) -> Response:
    """Send the map when it has changed."""
    seen = await find_application(request)
    watch = watch_of(request, seen.key)

    async def make() -> dict[str, Any]:
        return {"map": await watch.render()}

    return stream_parts(dashboard_of(request).applications, make)


async def plan(request: Request) -> Response:
    """Plan a rebalancing or a draining, move nothing, and return the plan to look at."""
    command, fields = await _read_order(request)
    seen, board = await find_application(request), dashboard_of(request).applications
    plans = (await board.ask(seen.key, command, dry_run=True, **fields))["plans"]
    markup = render_markup("dashboard/state_plans.html.j2", plans=describe_plans(plans))
    return JSONResponse({"plans": markup, "count": len(plans)})


async def start(request: Request) -> Response:
    """Begin what was planned: what counts is where state lies now."""
    command, fields = await _read_order(request)
    seen, board = await find_application(request), dashboard_of(request).applications
    told = await board.ask(seen.key, command, dry_run=False, by=who_asks(request), **fields)
    await watch_of(request, seen.key).render(fresh=True)
    return JSONResponse({"started": bool(told["started"])})


async def stop(request: Request) -> Response:
    """Stop a migration at the next batch boundary."""
    seen = await find_application(request)
    told = await dashboard_of(request).applications.ask(seen.key, "stop-migration")
    return JSONResponse({"stopping": bool(told["stopping"])})


async def _read_order(request: Request) -> tuple[str, dict[str, Any]]:
    """Return what is asked for: `rebalance`, or `drain` with an executor, and perhaps a strategy."""
    given = await read_body(request)
    command, strategy, executor = (given.get(key) for key in ("command", "strategy", "executor"))
    if command not in ("rebalance", "drain"):
        raise BadInput("command: rebalance or drain is expected")
    fields = {"strategy": Strategy.parse(str(strategy)).value if strategy else None}
    if command == "rebalance":
        return command, fields
    if not isinstance(executor, str) or not 0 < len(executor) <= 200:
        raise BadInput("executor: the id of an executor is expected")
    return command, {**fields, "executor": executor}


PAGE = Page(
    "state",
    "State",
    PATH,
    (
        Route(PATH, show),
        Route(f"{PATH}/events", stream),
        Route(f"{PATH}/plan", plan, methods=["POST"]),
        Route(f"{PATH}/start", start, methods=["POST"]),
        Route(f"{PATH}/stop", stop, methods=["POST"]),
    ),
)
