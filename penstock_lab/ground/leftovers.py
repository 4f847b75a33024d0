"""Names that carry their owner, and the removal of what owners left behind when they died."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from penstock_lab.ground.control_groups import Hierarchy

PREFIX = "penstock-ground-"
_NAME = re.compile(rf"{PREFIX}(\d+)-(\d+)-\d+(?:-|$)")
_PROCESSES = Path("/proc")
_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told from a later one with the same id by its start in clock ticks after the boot."""

    pid: int
    started: int

    @classmethod
    def this_process(cls, processes: Path = _PROCESSES) -> Self:
        """Return the process that asks."""
        started = find_start(os.getpid(), processes)
        assert started is not None, "this process runs"
        return cls(os.getpid(), started)

    @classmethod
    def named_in(cls, name: str) -> Self | None:
        """Return the owner that a name carries; None if it is not a name of a proving ground."""
        found = _NAME.match(name)
        return cls(int(found[1]), int(found[2])) if found else None

    def is_running(self, processes: Path = _PROCESSES) -> bool:
        """Return whether the owner still runs."""
        return find_start(self.pid, processes) == self.started

    def next_name(self) -> str:
        """Return a name for one more ground of this process."""
        return f"{PREFIX}{self.pid}-{self.started}-{next(_NUMBERS)}"


def find_start(pid: int, processes: Path = _PROCESSES) -> int | None:
    """Return when a process started, in clock ticks after the boot; a zombie counts as not running."""
    try:
        text = (processes / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # the command's name stands in parentheses and may hold spaces and further parentheses
    state, *figures = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(figures[18])


def remove_leftovers(
    hierarchy: Hierarchy, directories: Path | None = None, processes: Path = _PROCESSES
) -> list[str]:
    """Kill the processes and remove the groups and directories of grounds whose owner is dead."""
    removed = []
    for group in hierarchy.find(PREFIX):
        # an owner in another process namespace looks dead from here: its processes are listed as 0
        if _is_left_over(group.name, processes) and 0 not in group.processes():
            group.kill()
            group.remove()
            removed.append(group.name)
    for directory in (directories or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        if _is_left_over(directory.name, processes):
            shutil.rmtree(directory, ignore_errors=True)
            removed.append(directory.name)
    return removed


def _is_left_over(name: str, processes: Path) -> bool:
    owner = Owner.named_in(name)
    return owner is not None and not owner.is_running(processes)
