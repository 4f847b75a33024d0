"""The board: how all applications of this user stand, asked on their sockets only while someone looks.

However many browsers look, each application is asked once a round, and one that hangs delays no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.errors import NotFound, PenstockError
from penstock.runtime import control

EVERY_SECONDS = 1.0
PATIENCE_SECONDS = 1.0
"""How long a round waits for answers; those that come later count in the next one."""
ASKED_AT_ONCE = 16
MOST_ENDED = 50
"""Applications that ended while they were watched and are still shown."""

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """One application as it was last seen; `key` names it in addresses.

    `status` is its last answer, empty before the first. `trouble` says why it does not answer now, and
    `ended` that nobody listens at its socket any more.
    """

    key: str
    path: Path
    at: float
    status: Plain = field(default_factory=dict)
    trouble: str | None = None
    ended: bool = False

    @property
    def application(self) -> str:
        """The id of the application, or what its socket is called while it has not answered."""
        return str(self.status.get("application") or self.key)

    @property
    def name(self) -> str:
        """The name that people gave it, or its id."""
        return str(self.status.get("name") or self.application)


class SocketBoard:
    """The last status of each application, and the rounds that ask for it; used from one event loop."""

    def __init__(
        self, directory: Path, every: float = EVERY_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._directory, self._every, self._clock = directory, every, clock
        self._pool = ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="penstock-board")
        self._seen: dict[str, Seen] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._listeners: set[asyncio.Event] = set()
        self._rounds: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")
        self._closed = False

    def list_seen(self) -> list[Seen]:
        """List all applications as they were last seen, those that run first."""
        return sorted(self._seen.values(), key=lambda one: (one.ended, one.name, one.key))

    def find(self, key: str) -> Seen | None:
        """Return one application as it was last seen."""
        return self._seen.get(key)

    async def look(self) -> list[Seen]:
        """List all applications as they stand now: what is known is used while it is fresh."""
        if time.monotonic() - self._looked_at > self._every:
            await self._look_round()
        return self.list_seen()

    async def follow(self) -> AsyncIterator[None]:
        """Come back after each round, until the board is closed; rounds go on as long as anyone follows."""
        news = asyncio.Event()
        self._listeners.add(news)
        try:
            if self._rounds is None or self._rounds.done():
                self._rounds = asyncio.create_task(self._go_round())
            while not self._closed:
                await news.wait()
                news.clear()
                yield
        finally:
            self._listeners.discard(news)

    async def ask(self, key: str, command: str, **fields: Any) -> Plain:
        """Send one command to an application and return its answer; NotFound for one that is unknown."""
        seen = self._seen.get(key)
        if seen is None or seen.ended:
            raise NotFound(f"{key} does not run")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: control.ask(seen.path, command, **fields))

    async def look_again(self, key: str) -> None:
        """Ask one application anew, as after an order, and tell all who follow."""
        seen = self._seen.get(key)
        if seen is not None:
            await self._ask_status(key, seen.path)
            self._tell()

    def close(self) -> None:
        """Ask no more, and send all away who follow."""
        self._closed = True
        self._tell()
        if self._rounds is not None:
            self._rounds.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _go_round(self) -> None:
        while self._listeners:
            await self._look_round()
            self._tell()
            await asyncio.sleep(self._every)

    def _tell(self) -> None:
        for news in self._listeners:
            news.set()

    async def _look_round(self) -> None:
        """Ask all that are not still being asked, and wait a moment for their answers."""
        self._looked_at = time.monotonic()
        paths = {path.stem: path for path in self._directory.glob("*.sock")}
        asked = [self._begin_to_ask(key, path) for key, path in paths.items() if key not in self._asking]
        for key, seen in self._seen.items():
            if key not in paths and not seen.ended:
                self._seen[key] = replace(seen, ended=True, trouble="it has ended")
        if asked:
            await asyncio.wait(asked, timeout=PATIENCE_SECONDS)
        for key in self._asking:
            self._notice(key, paths.get(key), trouble="it does not answer")
        self._drop_oldest()

    def _begin_to_ask(self, key: str, path: Path) -> asyncio.Task[None]:
        task = asyncio.create_task(self._ask_status(key, path))
        self._asking[key] = task
        task.add_done_callback(lambda _: self._asking.pop(key, None))
        return task

    async def _ask_status(self, key: str, path: Path) -> None:
        known = self._seen.get(key)
        before: Plain = known.status if known is not None else {}

        def ask() -> Plain:
            # who names the version of the past that he has is not sent it again
            status: Plain = control.ask(path, "status", timeline=before.get("timeline"))["status"]
            return status

        try:
            fresh = await asyncio.get_running_loop().run_in_executor(self._pool, ask)
        except NotFound:
            self._notice(key, path, trouble="it has ended", ended=True)
        except PenstockError as error:
            self._notice(key, path, trouble=str(error))
        else:
            self._seen[key] = Seen(key, path, self._clock(), {**before, **fresh})

    def _notice(self, key: str, path: Path | None, trouble: str, ended: bool = False) -> None:
        """Keep what was known of an application that does not answer; a socket left behind is no news."""
        known = self._seen.get(key)
        if known is not None:
            self._seen[key] = replace(known, trouble=trouble, ended=ended)
        elif path is not None and not ended:
            self._seen[key] = Seen(key, path, self._clock(), trouble=trouble)

    def _drop_oldest(self) -> None:
        ended = sorted((one for one in self._seen.values() if one.ended), key=lambda one: one.at)
        for one in ended[: max(0, len(ended) - MOST_ENDED)]:
            del self._seen[one.key]
