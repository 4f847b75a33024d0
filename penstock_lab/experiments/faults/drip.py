"""A service that answers a byte at a time, and never ends."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EVERY_SECONDS, MOST_BYTES = 0.5, 10_000


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer as slowly as can be."""
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            for _ in range(MOST_BYTES):
                self.wfile.write(b"#")
                time.sleep(EVERY_SECONDS)

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


class DrippingService:
    """The service, for the length of a `with`."""

    def __enter__(self) -> DrippingService:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/metrics"
        threading.Thread(target=self._server.serve_forever, name="drip", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
