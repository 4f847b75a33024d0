"""Messages between a supervisor and its driver: one JSON object a line, over a pair of sockets."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import orjson

log = logging.getLogger(__name__)

VARIABLE = "SUPERVISED_BY_PENSTOCK"
"""Names the socket's number in the environment of a supervised driver."""
JOB_VARIABLE = "SUPERVISED_JOB"
ACTION_VARIABLE = "SUPERVISED_ACTION"
LONGEST_LINE = 1 << 20


class Channel:
    """One end of the pair; any thread may say something, one thread reads."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._saying = threading.Lock()
        self._unread = b""

    def fileno(self) -> int:
        """Return the socket's number, for a selector."""
        return self._end.fileno()

    def say(self, **message: Any) -> bool:
        """Send one message; return False if nobody is there any more."""
        return self.write(orjson.dumps(message, default=str))

    def write(self, line: bytes) -> bool:
        """Send one line as it is; return False if nobody is there any more."""
        try:
            with self._saying:
                self._end.sendall(line + b"\n")
        except OSError:
            return False
        return True

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """Wait for a byte, then return the messages that are there and whether the other end is open."""
        try:
            found = self._end.recv(1 << 16)
        except BlockingIOError:
            return [], True
        except OSError:
            return [], False
        *lines, self._unread = (self._unread + found).split(b"\n")
        if len(self._unread) > LONGEST_LINE:
            self._unread = b""
        return [message for message in map(_parse_line, lines) if message], bool(found)

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield all messages until the other end is closed."""
        is_open = True
        while is_open:
            found, is_open = self.read()
            yield from found

    def close(self) -> None:
        """Give the socket back; a reader in another thread is let go."""
        try:
            self._end.shutdown(socket.SHUT_RDWR)
        except OSError:
            log.debug("the other end had gone already")
        self._end.close()


def open_channel() -> tuple[Channel, socket.socket]:
    """Return the supervisor's end, and the socket that its driver gets."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return Channel(ours), theirs


_own: list[Channel] = []


def find_own_channel() -> Channel | None:
    """Return the channel to the supervisor of this process; None where there is no supervisor."""
    if not _own and os.environ.get(VARIABLE, "").isdecimal():
        end = socket.socket(fileno=int(os.environ.pop(VARIABLE)))
        end.set_inheritable(False)
        _own.append(Channel(end))
    return _own[0] if _own else None


def _parse_line(line: bytes) -> dict[str, Any] | None:
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return message if isinstance(message, dict) else None
