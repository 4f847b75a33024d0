"""Free cores and memory of each host of a standalone cluster, read from its master's JSON page."""

from __future__ import annotations

import http.client
import logging
import urllib.request
from collections.abc import Mapping
from typing import Any

import orjson

from penstock.dataflow.window import ApplicationWindow
from penstock.decide.sage.resizer import Host
from penstock.decide.sage.sizes import held_from
from penstock.errors import BadInput

log = logging.getLogger(__name__)

MIB = 1024.0**2
LARGEST_TEXT = 32 << 20


class StandaloneCluster:
    """Asks the master when a size is to be fitted; nothing is known of hosts while it does not answer."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url, self._timeout = url, timeout
        self._troubled = False

    def hosts(self, window: ApplicationWindow) -> tuple[Host, ...]:
        """Return what each host can give this application, its own executors included."""
        try:
            found = hosts_from(self._told(), own_use(window))
            self._troubled = False
        except BadInput as error:
            if not self._troubled:
                log.warning("what is free on the cluster is not known: %s", error)
            self._troubled = True
            return ()
        return found

    def _told(self) -> bytes:
        try:
            with urllib.request.urlopen(self._url, timeout=self._timeout) as answer:
                text: bytes = answer.read(LARGEST_TEXT)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise BadInput(f"{self._url} cannot be read: {error}") from error
        return text


def own_use(window: ApplicationWindow) -> dict[str, tuple[int, float]]:
    """Return host → cores and bytes that this application holds there; the master counts the heap alone."""
    held = held_from(window.sizing.settings if window.sizing else {}, window)
    found: dict[str, tuple[int, float]] = {}
    for executor in window.executors:
        cores, memory = found.get(executor.host, (0, 0.0))
        found[executor.host] = (cores + executor.cores * held.task_cpus, memory + held.heap_bytes)
    return found


def hosts_from(text: bytes, own: Mapping[str, tuple[int, float]]) -> tuple[Host, ...]:
    """Return the hosts of the master's JSON; workers that are not alive have nothing to give."""
    try:
        workers: list[Any] = orjson.loads(text)["workers"]
        free: dict[str, tuple[int, float]] = {}
        for worker in workers:
            if worker["state"] == "ALIVE":
                cores, memory = free.get(worker["host"], own.get(worker["host"], (0, 0.0)))
                given = int(worker["coresfree"]), float(worker["memoryfree"]) * MIB
                free[worker["host"]] = (cores + given[0], memory + given[1])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"this is not what a standalone master tells: {error!r}") from error
    return tuple(Host(cores, memory) for cores, memory in free.values())
