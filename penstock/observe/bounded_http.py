"""Reads and posts over HTTP within a total time and size: who answers a byte at a time is not waited for."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import SplitResult, urlsplit

from penstock.errors import BadInput

AGENT = "penstock"
LARGEST_ANSWER = 1 << 20
TRANSIENT = (408, 425, 429)
"""Answers after which the same may be taken later."""


def fetch_page(url: str, seconds: float, largest: int, accept: str = "*/*") -> bytes:
    """Return what is at this address; BadInput if that takes longer, is larger, or is anything but a 200.

    No redirect is followed: it would lead where no setting has allowed it, from inside the user's network.
    """
    fetch = _Fetch(url, seconds, largest, {"Accept": accept})
    trouble = fetch.wait(seconds)
    if trouble is not None:
        raise BadInput(f"{url} cannot be read: {trouble}") from trouble
    return fetch.text


class NotTaken(BadInput):
    """A refused post; where `is_final`, it will never be taken."""

    def __init__(self, told: str, is_final: bool) -> None:
        super().__init__(told)
        self.is_final = is_final


def post_page(url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> None:
    """Post to this address; NotTaken if that takes longer, or the answer is not one of success.

    The address may be a secret, so the error names the host alone. No redirect is followed.
    """
    fetch = _Fetch(url, seconds, LARGEST_ANSWER, headers, body)
    trouble = fetch.wait(seconds)
    if trouble is not None:
        status = fetch.status or 0
        final = 300 <= status < 500 and status not in TRANSIENT
        raise NotTaken(f"{name_host(url)} does not take it: {trouble}", final) from trouble


def name_host(url: str) -> str:
    """Name the host of an address, without what may be a secret."""
    try:
        return urlsplit(url).hostname or "an address without a host"
    except ValueError:
        return "an address without a host"


class _Fetch(threading.Thread):
    """One request, in a thread that whoever asked may leave behind: names are looked up without a timeout."""

    schemes: ClassVar[dict[str, int]] = {"http": 80, "https": 443}

    def __init__(
        self, url: str, seconds: float, largest: int, headers: Mapping[str, str], body: bytes | None = None
    ) -> None:
        super().__init__(name="penstock-fetch", daemon=True)
        self._url, self._largest, self._headers, self._body = url, largest, headers, body
        self._deadline = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._broken_off = False
        self._line: socket.socket | None = None
        self.text = b""
        self.status: int | None = None
        self.trouble: Exception | None = None

    def wait(self, seconds: float) -> Exception | None:
        """Run it, for so long at most; return what went wrong."""
        self.start()
        self.join(seconds)
        if self.is_alive():
            self.break_off()
            return TimeoutError(f"timed out after {seconds:g} s")
        return self.trouble

    def run(self) -> None:
        """Fetch it, and keep what went wrong for whoever waits."""
        try:
            self.text = self._fetch(urlsplit(self._url))
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.trouble = error
        finally:
            self._hang_up()

    def break_off(self) -> None:
        """Let the thread end: what it waits for comes no more."""
        with self._lock:
            self._broken_off = True
            if self._line is not None:
                try:
                    self._line.shutdown(socket.SHUT_RDWR)
                except OSError:
                    return

    def _fetch(self, parts: SplitResult) -> bytes:
        if parts.scheme not in self.schemes or not parts.hostname:
            raise ValueError("an address with http:// or https:// is expected")
        host, port = parts.hostname, parts.port or self.schemes[parts.scheme]
        connection = http.client.HTTPConnection(host, port, timeout=self._remaining())
        connection.sock = self._connect(parts.scheme, host, port)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            headers = {**self._headers, "User-Agent": AGENT, "Connection": "close"}
            method = "GET" if self._body is None else "POST"
            connection.request(method, target, body=self._body, headers=headers)
            answer = connection.getresponse()
            self.status = answer.status
            taken = answer.status == http.client.OK or (self._body is not None and answer.status // 100 == 2)
            if not taken:
                moved = "; redirects are not followed" if 300 <= answer.status < 400 else ""
                raise ValueError(f"the answer is {answer.status} {answer.reason}{moved}")
            text = answer.read(self._largest + 1)
        finally:
            connection.close()
        if len(text) > self._largest:
            raise ValueError(f"it is longer than {self._largest >> 20} MB")
        return text

    def _connect(self, scheme: str, host: str, port: int) -> socket.socket:
        line = socket.create_connection((host, port), timeout=self._remaining())
        with self._lock:
            # a second handle on it: TLS takes the first one over
            self._line = line.dup()
            if self._broken_off:
                line.close()
                raise TimeoutError("timed out")
        if scheme == "http":
            return line
        return ssl.create_default_context().wrap_socket(line, server_hostname=host)

    def _remaining(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def _hang_up(self) -> None:
        with self._lock:
            if self._line is not None:
                self._line.close()
                self._line = None
