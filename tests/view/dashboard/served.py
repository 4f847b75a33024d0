"""Hand-written applications on real control sockets, and the dashboard over them on a real port."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from penstock.dataflow.costs.foresight import Outlook, write_outlook
from penstock.errors import BadInput
from penstock.runtime.control import ControlServer
from penstock.settings.model import Settings
from penstock.view.dashboard.access import Access
from penstock.view.dashboard.app import make_app
from penstock.view.dashboard.server import Address, describe_address, listen_at, serve_in_thread
from tests.view.made_up import STEP, status

EVERY = 0.1


class FakeApplication:
    """An application that answers what it is told to, and notes what it is asked."""

    def __init__(
        self, directory: Path, application: str, outlooks: Sequence[Outlook] = (), **changes: Any
    ) -> None:
        self.outlooks = outlooks
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.status = {**status(application=application), "timeline": f"{application}.1", **changes}
        _move_to_now(self.status)
        self.server = ControlServer(directory, application, self._answer)

    def change(self, **changes: Any) -> None:
        """Let the next status differ."""
        name, _, count = str(self.status["timeline"]).rpartition(".")
        self.status = {**self.status, **changes, "timeline": f"{name}.{int(count) + 1}"}

    def close(self) -> None:
        self.server.close()

    def _answer(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((command, request))
        if command == "hello":
            return {"application": self.status["application"], "name": self.status["name"]}
        if command == "status":
            if request.get("timeline") == self.status["timeline"]:
                return {"status": {key: value for key, value in self.status.items() if key != "recent"}}
            return {"status": self.status}
        if command == "outlooks":
            return {"outlooks": [write_outlook(one) for one in self.outlooks]}
        if command in ("pause", "resume"):
            self.status |= {"paused": command == "pause", "pause_reason": "paused by hand"}
            return {"paused": command == "pause"}
        if command == "scale":
            if request["executors"] > 12:
                raise BadInput("99 executors are not allowed: max_executors is 12")
            return {"executors": request["executors"]}
        raise BadInput(f"unknown command {command!r}")


def _move_to_now(status: dict[str, Any]) -> None:
    """Let the made-up run end now: pages show times of day."""
    later = time.time() - status["now"]
    status["now"] += later
    status["recent"] = [{**point, "at": point["at"] + later} for point in status["recent"]]
    status["decisions"] = [{**one, "at": one["at"] + later} for one in status["decisions"]]
    for query in status["queries"]:
        query["critical_windows"] = [{**one, "at": one["at"] + later} for one in query["critical_windows"]]


def next_point(status: Mapping[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """Return the recent points with one more."""
    last = status["recent"][-1]
    return [*status["recent"], {**last, "at": last["at"] + STEP, **changes}]


@contextmanager
def served(directory: Path, access: Access | None = None, **settings: Any) -> Iterator[httpx.Client]:
    """Serve the dashboard over these sockets; the client follows no redirects."""
    made = Settings(
        runtime_directory=str(directory), journal=str(directory.parent / "journal.db"), **settings
    )
    chosen, listening = access or Access(), listen_at(Address("127.0.0.1", 0))
    base = describe_address(listening, Access())
    with (
        serve_in_thread(make_app(made, chosen, every=EVERY), listening),
        httpx.Client(base_url=base) as client,
    ):
        wait_until_served(client)
        yield client


def wait_until_served(client: httpx.Client) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            client.get("/static/penstock.svg")
            return
        except httpx.TransportError:
            time.sleep(0.01)
    raise AssertionError("the dashboard is not served")


def read_events(client: httpx.Client, address: str) -> Iterator[dict[str, Any]]:
    """Yield what the server sends, until the caller has enough."""
    import orjson

    with client.stream("GET", address, timeout=30) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield orjson.loads(line[6:])
