"""How much memory a window needs, how much there is, and the refusal of what does not fit."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import BadInput

# Event columns, graph, counts and shares, as measured with 7.5 million events.
BYTES_PER_EVENT = 160
# Of these, what a trace needs when it has been read and nothing is computed yet, with the table it came from.
BYTES_PER_ROW = 70
# A window of the length that just fits would leave nothing to anyone else.
COMFORT = 0.8
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


def check_events(events: int, seconds: float, available: int, bytes_each: int = BYTES_PER_EVENT) -> None:
    """Refuses so many events in so long a window where they do not fit, and says which window would."""
    needed = events * bytes_each
    if needed > available:
        fitting = seconds * available / needed * COMFORT
        raise BadInput(
            f"the window of {seconds:.4g} s holds {events} events and needs {needed >> 20} MiB, but only "
            f"{available >> 20} MiB are free; a window of {fitting:.3g} s would fit"
        )
