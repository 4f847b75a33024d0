"""A web server whose answer a test sets: status, text, headers, delay, and how slowly it drips."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WebServer:
    """A server on loopback; `asked` counts requests, `drip` is the pause after each byte of `dripping`."""

    def __init__(self, text: str = "") -> None:
        self.status, self.text, self.delay = 200, text, 0.0
        self.headers: dict[str, str] = {}
        self.dripping, self.drip, self.drips = "body", 0.0, 40
        self.asked = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.asked += 1
                time.sleep(service.delay)
                try:
                    service._answer(self)
                except OSError:
                    """The client has gone."""

            def log_message(self, *arguments: object) -> None:
                """Nothing is to be printed."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        if self.drip and self.dripping == "head":
            handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Long: ")
            self._drip(handler)
            handler.wfile.write(b"\r\n\r\n" + self.text.encode())
            return
        handler.send_response(self.status)
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if self.drip:
            self._drip(handler)
        handler.wfile.write(self.text.encode())

    def _drip(self, handler: BaseHTTPRequestHandler) -> None:
        """Send a space at a time: in the end the answer is one that can be read."""
        for _ in range(self.drips):
            handler.wfile.write(b"\n" if self.dripping == "body" else b" ")
            handler.wfile.flush()
            time.sleep(self.drip)

    def close(self) -> None:
        """Stop listening."""
        self.server.shutdown()
        self.server.server_close()
