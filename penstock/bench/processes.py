"""Processor time of an application's processes, from Linux's process table."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

PROCESSES = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds used so far: by this Python process, by its JVM, and by all processes that they started."""

    python: float
    driver_jvm: float
    everything: float

    def since(self, before: ProcessorTime) -> ProcessorTime:
        """What was used between two moments."""
        return ProcessorTime(
            self.python - before.python,
            self.driver_jvm - before.driver_jvm,
            self.everything - before.everything,
        )


def processor_time(driver_jvm: int) -> ProcessorTime:
    """Read it now; NaN where the system has no such table."""
    if not (PROCESSES / "self" / "stat").exists():
        return ProcessorTime(math.nan, math.nan, math.nan)
    used, parent = _table()
    us = os.getpid()
    ours = [process for process in used if _descends(process, us, parent)]
    return ProcessorTime(used.get(us, 0.0), used.get(driver_jvm, 0.0), sum(used[process] for process in ours))


def descendants(ancestor: int) -> list[int]:
    """A process and all that it started, directly or not; empty where the system has no such table."""
    if not (PROCESSES / "self" / "stat").exists():
        return []
    used, parent = _table()
    return [process for process in used if _descends(process, ancestor, parent)]


def _table() -> tuple[dict[int, float], dict[int, int]]:
    tick = os.sysconf("SC_CLK_TCK")
    used, parent = {}, {}
    for entry in PROCESSES.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            # the command's name may hold blanks and parentheses, so fields count from the last one
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        parent[int(entry.name)] = int(fields[1])
        # own time, and that of children which have ended
        used[int(entry.name)] = sum(int(field) for field in fields[11:15]) / tick
    return used, parent


def _descends(process: int, ancestor: int, parent: dict[int, int]) -> bool:
    while process not in (0, 1):
        if process == ancestor:
            return True
        process = parent.get(process, 0)
    return False
