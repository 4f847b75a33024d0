"""How much memory an event needs, and how much memory there is."""

from __future__ import annotations

import os
from pathlib import Path

# Event columns, graph, counts and shares, and what making them takes; measured with 3 million events of a
# trace (153) and 1.1 million of an event log (165).
BYTES_PER_EVENT = 170
_GROUP = Path("/sys/fs/cgroup")


def available_bytes(meminfo: Path = Path("/proc/meminfo"), group: Path = _GROUP) -> int:
    """What can be used without pushing others out: what the kernel says, and what is left of a limit."""
    return min(_of_machine(meminfo), _of_group(group))


def _of_machine(meminfo: Path) -> int:
    try:
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_group(group: Path) -> int:
    """Bytes left of the limit of a container; without one, more than any machine has."""
    try:
        most = (group / "memory.max").read_text(encoding="ascii").strip()
        used = (group / "memory.current").read_text(encoding="ascii").strip()
        return int(most) - int(used)
    except (OSError, ValueError):
        return 1 << 62
