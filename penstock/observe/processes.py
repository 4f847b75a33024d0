"""CPU time of executors on this machine with all their Python workers, from Linux's process table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_PARENT, _USER, _SYSTEM, _USER_OF_ENDED, _SYSTEM_OF_ENDED = 1, 11, 12, 13, 14
"""Fields of /proc/PID/stat after the name; those of ended children are in the last two."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process: its parent, and seconds of CPU time of it and of its ended children."""

    pid: int
    parent: int
    cpu_seconds: float
    command: tuple[str, ...]


def running_processes(root: Path = Path("/proc")) -> list[Process]:
    """All processes that can be seen; none where the system has no such table."""
    if not root.is_dir():
        return []
    found = (_process(entry) for entry in root.iterdir() if entry.name.isdecimal())
    return [process for process in found if process is not None]


def executor_cpu(processes: list[Process], application: str) -> dict[str, float]:
    """Executor → CPU seconds of its process tree so far, for executors of the application."""
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    totals: dict[str, float] = {}
    for process in processes:
        words = list(pairwise(process.command))
        if ("--app-id", application) in words:
            executor = next((value for key, value in words if key == "--executor-id"), None)
            if executor is not None:
                totals[executor] = totals.get(executor, 0.0) + _tree(process, children)
    return totals


def _tree(process: Process, children: dict[int, list[Process]]) -> float:
    return process.cpu_seconds + sum(_tree(child, children) for child in children.get(process.pid, ()))


def _process(entry: Path) -> Process | None:
    try:
        # the name, in brackets, may hold blanks; what follows it does not
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
        words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        ticks = sum(int(fields[n]) for n in (_USER, _SYSTEM, _USER_OF_ENDED, _SYSTEM_OF_ENDED))
        return Process(int(entry.name), int(fields[_PARENT]), ticks / os.sysconf("SC_CLK_TCK"), tuple(words))
    except (OSError, ValueError, IndexError):
        return None  # it ended meanwhile, or belongs to somebody else
