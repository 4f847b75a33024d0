"""Serves `/metrics` from the driver, in threads of its own: figures alone, few clients at a time.

Whoever reaches a loopback address without a token may read the figures; nothing can be changed here.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from penstock.errors import BadInput, Unsupported
from penstock.journal.private_files import read_secret
from penstock.runtime.telemetry.exposition import CONTENT_TYPE
from penstock.settings.telemetry import split_address

log = logging.getLogger(__name__)

MOST_CLIENTS = 8
LONGEST_SECONDS = 10.0
"""For which one client is served in all, however slowly it speaks."""
FRESH_SECONDS = 1.0
"""A text is made at most so often, whoever asks."""
SHORTEST_SECRET = 16


def read_token(path: Path, what: str) -> str:
    """Read a token or key of one line from a file of this user alone."""
    text = read_secret(path, what).strip()
    if len(text) < SHORTEST_SECRET or not text.isascii() or not text.isprintable() or " " in text:
        raise BadInput(f"{path}: {what} must be one line of at least {SHORTEST_SECRET} characters, no spaces")
    return text


class MetricsServer:
    """Answers who scrapes, until closed."""

    def __init__(self, address: str, token: str | None, tell: Callable[[], bytes]) -> None:
        host, port = split_address(address)
        try:
            self._server = _Listening(host, port, token, tell)
        except OSError as error:
            raise Unsupported(f"no metrics: cannot listen at {address}: {error.strerror or error}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="penstock-metrics", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:
            self._server.server_close()
            raise Unsupported(f"no metrics: {error}") from error

    @property
    def url(self) -> str:
        """Where the metrics are; also where the port was left to the system."""
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/metrics"

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=2)


class _Listening(ThreadingHTTPServer):
    """The listening socket: bounds its clients in number and in time."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_CLIENTS

    def __init__(self, host: str, port: int, token: str | None, tell: Callable[[], bytes]) -> None:
        self.token, self._tell = token, tell
        self._lock = threading.Lock()
        self._text, self._made_at = b"", float("-inf")
        self._clients: dict[socket.socket, float] = {}
        self._counting = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Client)

    def text(self) -> bytes:
        """Return the metrics of now, or of a moment ago."""
        with self._lock:
            now = time.monotonic()
            if now - self._made_at >= FRESH_SECONDS:
                self._text, self._made_at = self._tell(), now
            return self._text

    def server_bind(self) -> None:
        """Bind without looking up the host's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client in a thread; one too many is turned away."""
        with self._counting:
            full = len(self._clients) >= MOST_CLIENTS
            if not full:
                self._clients[request] = time.monotonic() + LONGEST_SECONDS
        if full:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # no thread to spare
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Let a client go, and its place to another."""
        with self._counting:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off clients that take too long; called about twice a second."""
        now = time.monotonic()
        with self._counting:
            late = [client for client, until in self._clients.items() if now > until]
        for client in late:
            try:
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                log.debug("a client has gone already")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that goes away in mid-answer is no news for the user's job."""


class _Client(BaseHTTPRequestHandler):
    timeout = LONGEST_SECONDS
    server: _Listening

    def do_GET(self) -> None:
        """Answer with the metrics, or say why not."""
        if not self._may_read():
            return
        if self.path.partition("?")[0] != "/metrics":
            self._answer(HTTPStatus.NOT_FOUND, b"only /metrics is here\n")
            return
        try:
            self._answer(HTTPStatus.OK, self.server.text(), CONTENT_TYPE)
        except OSError:
            raise
        except Exception:
            log.warning("the metrics could not be told", exc_info=True)
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"the metrics could not be told\n")

    def _may_read(self) -> bool:
        """Ask for the token; without one only for a host that no foreign page can have led here."""
        token = self.server.token
        if token is None:
            if not _is_own_name(self.headers.get("Host", "")):
                self._answer(HTTPStatus.FORBIDDEN, b"not by this name: use the address itself\n")
                return False
            return True
        given = self.headers.get("Authorization", "").encode("utf-8", "replace")
        if hmac.compare_digest(given, f"Bearer {token}".encode()):
            return True
        self._answer(HTTPStatus.UNAUTHORIZED, b"a token is needed: Authorization: Bearer ...\n")
        return False

    def _answer(self, status: HTTPStatus, text: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(text))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(text)

    def version_string(self) -> str:
        """Name ourselves without versions."""
        return "penstock"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the library calls it so
        """Say nothing of a scrape."""


def _is_own_name(host: str) -> bool:
    """Tell whether a request names us by an address, or as localhost: a page of elsewhere names its own."""
    name = host.rpartition(":")[0] if host.count(":") == 1 or "]:" in host else host
    if name in ("", "localhost"):
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
