"""CPU time and memory of an application's processes: this one, its JVM, and all that they started."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from penstock.observe.executors.processes import add_up, find_tree, list_processes

EVERY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """CPU seconds used so far: by this Python process, by its JVM, and by all processes that they started."""

    python: float
    driver_jvm: float
    everything: float

    def since(self, before: ProcessorTime) -> ProcessorTime:
        """Return what was used between two moments."""
        return ProcessorTime(
            self.python - before.python,
            self.driver_jvm - before.driver_jvm,
            self.everything - before.everything,
        )


def processor_time(driver_jvm: int) -> ProcessorTime:
    """Read the processor time of this process, of the driver's JVM and of the whole tree."""
    processes = list_processes()
    used = {process.pid: process.cpu_seconds for process in processes}
    tree = add_up(find_tree(os.getpid(), processes))
    return ProcessorTime(used.get(os.getpid(), 0.0), used.get(driver_jvm, 0.0), tree.cpu_seconds)


def resident_bytes(root: int | None = None) -> float:
    """Add up the resident memory of a process, by default this one, and of all that it started."""
    return add_up(find_tree(os.getpid() if root is None else root, list_processes())).resident_bytes


class MemorySampler:
    """Samples the memory of this process and all that it started, in a thread, while the block runs."""

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
        """Return the bytes of each sample from then on."""
        return [size for _, size in self.course(start)]

    def course(self, start: float) -> tuple[tuple[float, float], ...]:
        """Return time and bytes of each sample from then on."""
        return tuple((at, size) for at, size in list(self._samples) if at >= start)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            self._samples.append((time.time(), resident_bytes()))
