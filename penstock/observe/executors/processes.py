"""Executors on this machine: CPU time and memory of their process trees, and why executors were lost."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psutil

from penstock.dataflow.window import MemoryLoss

ROOT = 0


@dataclass(frozen=True, slots=True)
class Process:
    """One process; its CPU seconds include those of its children that have ended."""

    pid: int
    parent: int
    cpu_seconds: float
    resident_bytes: float
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TreeUse:
    """CPU time that a process tree has used so far, and memory that it holds now."""

    cpu_seconds: float
    resident_bytes: float


def list_processes(users: frozenset[int] | None = None) -> list[Process]:
    """List the processes of these users, by default this one and root: anybody can name his as he likes."""
    believed = frozenset({os.getuid(), ROOT}) if users is None else users
    wanted = ["pid", "ppid", "uids", "cpu_times", "memory_info", "cmdline"]
    return [
        Process(
            one["pid"], one["ppid"], sum(one["cpu_times"][:4]), one["memory_info"].rss, tuple(one["cmdline"])
        )
        for one in (process.info for process in psutil.process_iter(wanted))
        if None not in (one["uids"], one["cpu_times"], one["memory_info"], one["cmdline"])
        # the real one: whoever starts a program with the rights of root does not get to speak for it
        and one["uids"].real in believed
    ]


def find_tree(root: int, processes: Iterable[Process]) -> list[Process]:
    """Return a process and all that it started, directly or not."""
    children: dict[int, list[Process]] = {}
    listed = list(processes)
    for process in listed:
        children.setdefault(process.parent, []).append(process)

    def walk(process: Process) -> Iterator[Process]:
        yield process
        for child in children.get(process.pid, ()):
            yield from walk(child)

    return [found for process in listed if process.pid == root for found in walk(process)]


def find_executors(processes: Iterable[Process], application: str) -> dict[str, int]:
    """Return executor → its process, for the executors of an application."""
    found: dict[str, int] = {}
    for process in processes:
        words = dict(pairwise(process.command))
        if words.get("--app-id") == application and "--executor-id" in words:
            found[words["--executor-id"]] = process.pid
    return found


def measure_executors(processes: Iterable[Process], application: str) -> dict[str, TreeUse]:
    """Return executor → what its process tree uses, for the executors of an application."""
    listed = list(processes)
    return {
        executor: add_up(find_tree(pid, listed))
        for executor, pid in find_executors(listed, application).items()
    }


def add_up(processes: Iterable[Process]) -> TreeUse:
    """Add up what processes use; pages that they share count for each."""
    listed = list(processes)
    return TreeUse(sum(one.cpu_seconds for one in listed), sum(one.resident_bytes for one in listed))


_OUT_OF_HEAP = re.compile(
    r"OutOfMemoryError|exit(ed with)? (code|status):? ?52\b|exitCode:? ?52\b", re.IGNORECASE
)
"""52 is the code with which an executor ends itself after an OutOfMemoryError."""
_KILLED = re.compile(
    r"exceed\w* (the )?(physical|virtual|its)? ?memory|memory limits?|OOMKilled|\bOOM\b"
    r"|exit(ed with)? (code|status):? ?137\b|exitCode:? ?137\b",
    re.IGNORECASE,
)
"""137 is the code of a process that was killed from outside, on Linux mostly for its memory."""


LATE_SECONDS = 60.0
"""By so much Spark may be late to list an executor that it has lost."""


class Losses:
    """Counts each lost executor once, in the first window that hears of it, and not in the one it falls into.

    Spark's listeners are behind what has happened, most of all when a driver has much to do, and that an
    executor ran out of memory is told once.
    """

    def __init__(self) -> None:
        self._counted: set[str] = set()

    def counts(self, executors: Iterable[Mapping[str, Any]], start: float, end: float) -> tuple[int, int]:
        """In the window [start, end): how many ran out of heap, and how many were killed for memory."""
        found = self.list_new(executors, start, end)
        heap = sum(loss.out_of_heap for loss in found)
        return heap, len(found) - heap

    def list_new(
        self, executors: Iterable[Mapping[str, Any]], start: float, end: float
    ) -> tuple[MemoryLoss, ...]:
        """List those that were lost for want of memory and are heard of in the window [start, end)."""
        new = [executor for executor in executors if self._is_new(executor, start, end)]
        return tuple(loss for executor in new if (loss := _read_loss(executor)) is not None)

    def _is_new(self, executor: Mapping[str, Any], start: float, end: float) -> bool:
        removed, name = executor.get("removeTime"), str(executor.get("id"))
        if removed is None or name in self._counted:
            return False
        is_new = start - LATE_SECONDS <= float(removed) / 1000 < end
        if is_new:
            self._counted.add(name)
        return is_new


def _read_loss(executor: Mapping[str, Any]) -> MemoryLoss | None:
    reason = str(executor.get("removeReason") or "")
    out_of_heap = bool(_OUT_OF_HEAP.search(reason))
    if not (out_of_heap or _KILLED.search(reason)):
        return None
    host = str(executor.get("hostPort") or "").rsplit(":", 1)[0]
    return MemoryLoss(str(executor["id"]), host, float(executor["removeTime"]) / 1000, out_of_heap)
