"""Free cores and memory of each host of a standalone cluster, read from its master's JSON page."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

import orjson

from penstock.dataflow.window import ApplicationWindow
from penstock.decide.sage.resizer import Host
from penstock.decide.sage.sizes import held_from
from penstock.errors import BadInput
from penstock.observe.bounded_http import fetch_page
from penstock.units.texts import show_value

log = logging.getLogger(__name__)

MIB = 1024.0**2
LARGEST_TEXT = 32 << 20
MOST_CORES, MOST_MEMORY_MB = 100_000, 1e9
TOLD_FOR_SECONDS = 120.0
"""How long what the master told counts while it does not answer."""


class StandaloneCluster:
    """Asks the master in a daemon thread; whoever sizes an application is told what is known, and waits not.

    Nothing is known of hosts while the master does not answer.
    """

    def __init__(self, url: str, every: float, timeout: float, told_for: float = TOLD_FOR_SECONDS) -> None:
        self._url, self._every, self._timeout, self._told_for = url, every, timeout, told_for
        self._told: tuple[float, Mapping[str, tuple[int, float]]] | None = None
        self._troubled = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-master", daemon=True)

    def __enter__(self) -> StandaloneCluster:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()

    def look(self) -> None:
        """Ask the master once."""
        try:
            free = read_free(fetch_page(self._url, self._timeout, LARGEST_TEXT))
        except BadInput as error:
            if not self._troubled:
                log.warning("what is free on the cluster is not known: %s", error)
            self._troubled = True
            return
        self._told, self._troubled = (time.monotonic(), free), False

    def hosts(self, window: ApplicationWindow) -> tuple[Host, ...]:
        """Return what each host can give this application, its own executors included."""
        told = self._told
        if told is None or time.monotonic() - told[0] >= self._told_for:
            return ()
        return add_own(told[1], own_use(window))

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            self._stopping.wait(self._every)


def own_use(window: ApplicationWindow) -> dict[str, tuple[int, float]]:
    """Return host → cores and bytes that this application holds there; the master counts the heap alone."""
    held = held_from(window.sizing.settings if window.sizing else {}, window)
    found: dict[str, tuple[int, float]] = {}
    for executor in window.executors:
        cores, memory = found.get(executor.host, (0, 0.0))
        found[executor.host] = (cores + executor.cores * held.task_cpus, memory + held.heap_bytes)
    return found


def read_free(text: bytes) -> dict[str, tuple[int, float]]:
    """Return host → free cores and bytes, from the master's JSON; workers that are not alive give none."""
    try:
        workers: list[Any] = orjson.loads(text)["workers"]
        free: dict[str, tuple[int, float]] = {}
        for worker in workers:
            if worker["state"] == "ALIVE":
                host = _read_name(worker["host"])
                cores, memory = free.get(host, (0, 0.0))
                more = _read_amount(worker["coresfree"], MOST_CORES)
                much = _read_amount(worker["memoryfree"], MOST_MEMORY_MB)
                free[host] = (cores + int(more), memory + much * MIB)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"this is not what a standalone master tells: {error!r}") from error
    return free


def add_own(free: Mapping[str, tuple[int, float]], own: Mapping[str, tuple[int, float]]) -> tuple[Host, ...]:
    """Return the hosts with what is free there and what the application holds there itself."""
    held = {name: own.get(name, (0, 0.0)) for name in free}
    return tuple(Host(free[name][0] + held[name][0], free[name][1] + held[name][1]) for name in free)


def _read_name(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{show_value(given)} is no name")
    return given


def _read_amount(given: object, most: float) -> float:
    if not isinstance(given, int | float) or not 0 <= given <= most:
        raise ValueError(f"{show_value(given)} is no amount")
    return float(given)
