"""A small service that a job asks about customers: it answers after a wait, as a remote one would.

    python -m penstock_lab.jobs.lookup_service --wait-ms 15

prints its address, and serves until it is ended. `lookup_service` runs it as a process of its own.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock_lab.jobs.tables import credit_limit

WAIT_MS = 15.0


class LookupServer(ThreadingHTTPServer):
    """Serves each connection in a thread, so that only the wait limits how many it answers."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, wait_seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), LookupHandler)
        self.wait_seconds = wait_seconds

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet about clients that are gone: an executor that is released resets its connections."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class LookupHandler(BaseHTTPRequestHandler):
    """Answers `GET /customers/NUMBER` with the customer's credit limit."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """Head and body leave in one packet: two would wait for the client's delayed acknowledgement."""

    def setup(self) -> None:
        """Send every answer at once."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        """Answer after the wait."""
        assert isinstance(self.server, LookupServer)
        time.sleep(self.server.wait_seconds)
        number = self.path.removeprefix("/customers/")
        if not number.isdecimal():
            self.send_error(404)
            return
        body = json.dumps({"customer": int(number), "credit": credit_limit(int(number))}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Keep quiet: there are hundreds of requests a second."""


@contextmanager
def lookup_service(wait_ms: float = WAIT_MS) -> Iterator[str]:
    """Run the service for the length of a `with`; gives its address."""
    command = [sys.executable, "-m", "penstock_lab.jobs.lookup_service", "--wait-ms", str(wait_ms)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"the lookup service ended with code {process.wait()} before it served")
        yield address
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wait-ms", type=float, default=WAIT_MS)
    server = LookupServer(parser.parse_args().wait_ms / 1000)
    print(f"127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
