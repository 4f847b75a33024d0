"""Executors on this machine: CPU time and memory of their process trees."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import psutil

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
