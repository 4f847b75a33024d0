"""Resident memory of an application's processes, sampled while it runs, from Linux's process table."""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import Self

from penstock.bench.processes import PROCESSES, descendants

EVERY_SECONDS = 0.5


class MemorySampler:
    """Samples the sum over this process and all that it started, in a thread, while the block runs."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def since(self, start: float) -> list[float]:
        """Bytes at each sample from then on."""
        return [size for _, size in self.course(start)]

    def course(self, start: float) -> tuple[tuple[float, float], ...]:
        """Time and bytes of each sample from then on."""
        return tuple((at, size) for at, size in list(self._samples) if at >= start)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            self._samples.append((time.time(), resident_bytes()))


def resident_bytes() -> float:
    """The sum over this process and all that it started; pages that they share count for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0.0
    for process in descendants(os.getpid()):
        try:
            total += int((PROCESSES / str(process) / "statm").read_text().split()[1]) * page
        except OSError:
            continue  # it ended meanwhile
    return total
