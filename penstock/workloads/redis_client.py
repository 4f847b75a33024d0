"""The few Redis commands that a sink needs, over one connection, many commands at a time."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, BinaryIO

from penstock.errors import ActionFailed, BadInput

Command = Sequence[str | int]
KINDS = (b"-", b"+", b":", b"*", b"$")
"""How a reply begins: an error, a text, a number, a list, or a text of any bytes."""
NEEDED = "install and start redis-server, or name one that runs with --redis HOST:PORT"


class Redis:
    """A connection for the length of a `with`; replies are text, whole numbers, lists or None."""

    def __init__(self, address: str, timeout_seconds: float = 10.0) -> None:
        host, separator, port = address.rpartition(":")
        if not (separator and host and port.isdecimal()):
            raise BadInput(f"the Redis address {address!r} is not HOST:PORT")
        try:
            self._socket = socket.create_connection((host, int(port)), timeout_seconds)
        except (OSError, OverflowError) as error:
            raise BadInput(f"no Redis answers at {address} ({error}): {NEEDED}") from error
        self._replies: BinaryIO = self._socket.makefile("rb")
        try:
            self.ask("PING")
        except ActionFailed as error:
            # something else may listen there, or one that wants a password
            self.__exit__()
            raise BadInput(f"no Redis answers at {address} ({error}): {NEEDED}") from error

    def __enter__(self) -> Redis:
        return self

    def __exit__(self, *_: object) -> None:
        self._replies.close()
        self._socket.close()

    def ask(self, *command: str | int) -> Any:
        """One command and its reply."""
        return self.pipeline([command])[0]

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send all, then read all replies; the first error among them is raised."""
        try:
            self._socket.sendall(b"".join(_encoded(command) for command in commands))
            replies = [self._reply() for _ in commands]
        except OSError as error:
            raise ActionFailed(f"the connection to Redis broke: {error}") from error
        refused = next((reply for reply in replies if isinstance(reply, ActionFailed)), None)
        if refused is not None:
            raise refused
        return replies

    def _reply(self) -> Any:
        line = self._replies.readline()
        if not line.endswith(b"\r\n"):
            raise ActionFailed("Redis closed the connection")
        kind, text = line[:1], line[1:-2].decode(errors="replace")
        if kind not in KINDS:
            raise ActionFailed(f"this is no reply of Redis: {line[:40]!r}")
        if kind == b"-":
            return ActionFailed(f"Redis refused a command: {text}")
        if kind == b"+":
            return text
        if kind == b":":
            return int(text)
        if int(text) < 0:
            return None
        if kind == b"*":
            return [self._reply() for _ in range(int(text))]
        return self._replies.read(int(text) + 2)[:-2].decode()


def _encoded(command: Command) -> bytes:
    parts = [str(part).encode() for part in command]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
