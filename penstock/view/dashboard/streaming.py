"""Server-sent events: what has changed on a page, sent to the browsers that show it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import orjson
from starlette.responses import StreamingResponse

Parts = Mapping[str, Any]
"""Names with what is there now: ids of elements with their inner markup, or names of data for scripts."""


class Rounds(Protocol):
    """Something that works in rounds, such as `SocketBoard`, which looks at all applications in each."""

    def follow(self) -> AsyncIterator[None]:
        """Come back after each round."""


class SteadyRounds:
    """Comes back every so often, until it is closed."""

    def __init__(self) -> None:
        self._closed = asyncio.Event()

    async def follow(self, every: Callable[[], float]) -> AsyncIterator[None]:
        """Come back at once, then after so many seconds each time."""
        while not self._closed.is_set():
            yield
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), every())

    def close(self) -> None:
        """Come back no more."""
        self._closed.set()


MakeParts = Callable[[], Parts | Awaitable[Parts]]


def stream_parts(board: Rounds, make: MakeParts) -> StreamingResponse:
    """Send after each round of the board the parts that have changed since they were last sent.

    The browser gets one event with a JSON object. Where a value is a text, it is the inner markup of the
    element whose id is its name; anything else is handed to the page's script (`live.js`).
    """
    return StreamingResponse(
        _send_changes(board, make), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


async def _send_changes(board: Rounds, make: MakeParts) -> AsyncIterator[bytes]:
    sent: dict[str, bytes] = {}
    async for _ in board.follow():
        made = make()
        parts = await made if inspect.isawaitable(made) else made
        written = {
            name: orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY) for name, value in parts.items()
        }
        changed = [name for name, text in written.items() if sent.get(name) != text]
        sent = written
        if changed:
            body = b",".join(orjson.dumps(name) + b":" + written[name] for name in changed)
            yield b"data: {" + body + b"}\n\n"
        else:
            # a line that browsers skip: without it nobody would notice that one has gone
            yield b": nothing new\n\n"
