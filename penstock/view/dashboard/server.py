"""Serves the dashboard: in this process until it ends, or in a thread of a driver."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette

from penstock.errors import ActionFailed, BadInput
from penstock.settings.model import Settings
from penstock.view.dashboard.access import Access, choose_access
from penstock.view.dashboard.app import make_app

DEFAULT_ADDRESS = "127.0.0.1:4050"
STOP_SECONDS = 2
"""How long streams that are open may keep the server from ending."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read HOST:PORT, [HOST]:PORT or PORT."""
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if separator else "127.0.0.1"
    if not port.isdecimal() or int(port) > 65535 or not host:
        raise BadInput(f"{text!r} is no address: HOST:PORT such as 127.0.0.1:4050")
    return Address(host, int(port))


def listen_at(address: Address) -> socket.socket:
    """Listen at once: a port that is taken is told before anything is served, and who comes early waits."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise ActionFailed(f"cannot listen at {address}: {error.strerror}") from error
    return listening


@contextlib.contextmanager
def serve_beside(settings: Settings) -> Iterator[str]:
    """Serve at the address of the settings in a thread of this process; yield the address to open."""
    chosen = settings.dashboard
    where = parse_address(chosen.address or DEFAULT_ADDRESS)
    access = choose_access(where.host, chosen.token, chosen.proxy_header, chosen.host_names, chosen.read_only)
    listening = listen_at(where)
    with serve_in_thread(make_app(settings, access), listening):
        yield describe_address(listening, access)


def describe_address(listening: socket.socket, access: Access) -> str:
    """Return the address to open, with the token where one is needed."""
    address = Address(*listening.getsockname()[:2])
    return f"http://{address}/" + (f"?token={access.token}" if access.token else "")


def serve(app: Starlette, listening: socket.socket) -> None:
    """Serve until the process is told to end."""
    _make_server(app).run(sockets=[listening])


@contextlib.contextmanager
def serve_in_thread(app: Starlette, listening: socket.socket) -> Iterator[None]:
    """Serve in a daemon thread as long as the context lasts."""
    server = _make_server(app)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listening]}, name="penstock-dashboard", daemon=True
    )
    try:
        thread.start()
    except RuntimeError as error:
        listening.close()
        raise ActionFailed(f"no dashboard: {error}") from error
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=STOP_SECONDS + 1)


class _Server(uvicorn.Server):
    """A server that ends the streams of open pages first: they would go on for ever."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then the rest."""
        self.config.app.state.dashboard.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def _make_server(app: Starlette) -> uvicorn.Server:
    return _Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_SECONDS,
            loop="asyncio",
            http="h11",
            ws="none",
        )
    )
