"""CPU time and memory of executors on this machine with all their Python workers, from Linux's table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_PARENT, _USER, _SYSTEM, _USER_OF_ENDED, _SYSTEM_OF_ENDED, _RESIDENT_PAGES = 1, 11, 12, 13, 14, 21
"""Fields of /proc/PID/stat after the name; two of them are the CPU time of children that have ended."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process: its parent, seconds of CPU time of it and of its ended children, and resident memory."""

    pid: int
    parent: int
    cpu_seconds: float
    resident_bytes: float
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TreeUse:
    """What an executor's process tree has used so far, and holds now."""

    cpu_seconds: float
    resident_bytes: float


def running_processes(root: Path = Path("/proc")) -> list[Process]:
    """All processes that can be seen; none where the system has no such table."""
    if not root.is_dir():
        return []
    found = (_process(entry) for entry in root.iterdir() if entry.name.isdecimal())
    return [process for process in found if process is not None]


def executor_trees(processes: list[Process], application: str) -> dict[str, TreeUse]:
    """Executor of the application → what its process tree uses."""
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found: dict[str, TreeUse] = {}
    for process in processes:
        words = list(pairwise(process.command))
        if ("--app-id", application) in words:
            executor = next((value for key, value in words if key == "--executor-id"), None)
            if executor is not None:
                tree = list(_tree(process, children))
                cpu, resident = (
                    sum(one.cpu_seconds for one in tree),
                    sum(one.resident_bytes for one in tree),
                )
                found[executor] = TreeUse(cpu, resident)
    return found


def _tree(process: Process, children: dict[int, list[Process]]) -> Iterator[Process]:
    yield process
    for child in children.get(process.pid, ()):
        yield from _tree(child, children)


def _process(entry: Path) -> Process | None:
    try:
        # the name, in brackets, may hold blanks; what follows it does not
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
        words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        ticks = sum(int(fields[n]) for n in (_USER, _SYSTEM, _USER_OF_ENDED, _SYSTEM_OF_ENDED))
        cpu, resident = (
            ticks / os.sysconf("SC_CLK_TCK"),
            int(fields[_RESIDENT_PAGES]) * os.sysconf("SC_PAGE_SIZE"),
        )
        return Process(int(entry.name), int(fields[_PARENT]), cpu, resident, tuple(words))
    except (OSError, ValueError, IndexError):
        return None  # it ended meanwhile, or belongs to somebody else
