"""Hosts of a proving ground: Spark workers in control groups, at full speed while anything starts in them.

A Java that starts under a quota of 0.15 core takes a minute, which no real host would. So what starts in a
host gets its start for free: each executor and each Python daemon has a gift of CPU seconds, about what its
start takes. The host runs without a quota until the gifts are used up, and under its quota from then on.
Gifts are CPU seconds and not a span of time, because a busy machine is slow: the span would end in mid-start,
and on an idle machine leave time for free work. An executor that has started gets another part for the
classes which its first task loads, however long it waits for it; when it rests after that, it keeps nothing.
Else its first batches would be computed at a speed that no later one has.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from penstock.errors import ActionFailed, BadInput
from penstock_lab.ground.control_groups import ControlGroup, kill_processes
from penstock_lab.ground.java_servers import start_server

EXECUTOR_GIFT = 6.0
"""CPU seconds for the start of an executor: it has used 2 to 4 when it is registered, by the machine."""
PYTHON_GIFT = 1.8
"""A daemon of PySpark and its first worker have used 1.8 to 2.0 when they have given back a first row."""
FIRST_TASK_SHARE = 2.3
"""CPU seconds for each of its start that an executor gets for its first task: with an archive of loaded
classes that task has taken 6.7 where the start took 2.9, beside the Python that it started."""
REST_SECONDS, REST_SHARE = 1.0, 0.05
"""A host rests that has used less than this share of a core for so long."""
LEAST_START_SECONDS = 0.5
"""CPU seconds between two rests that belong to a start: heartbeats and collections take less."""
TASK_THREAD = "Executor task l"
"""The name of the threads in which an executor runs tasks, as the kernel cuts it."""

EVERY_SECONDS = 0.2
"""So long at most does a new Java run under the quota before it is noticed."""

LEAST_HEAP_MB = 450
MIB = 1 << 20
_SETTLED_LOOKS = 25
"""A process changes its command when it has forked; later it stays what it is."""


@dataclass(frozen=True, slots=True)
class HostShape:
    """The resources of a host: slots, cores of this machine to run them on, memory for all its processes.

    `heap_mb` is the heap of its executors; the rest of the memory is for their other parts, for Python and
    for the worker itself.
    """

    cores: int = 1
    cpu: float = 0.15
    memory_mb: int = 1280
    heap_mb: int = 512

    def __post_init__(self) -> None:
        if self.cores < 1 or self.cpu <= 0:
            raise BadInput(f"a host needs cores and cpu above 0, not {self.cores} and {self.cpu:g}")
        if self.heap_mb < LEAST_HEAP_MB:
            raise BadInput(f"heap_mb {self.heap_mb} is too small: Spark asks for {LEAST_HEAP_MB}")
        if self.memory_mb <= self.heap_mb:
            raise BadInput(f"memory_mb {self.memory_mb} has no room beside heap_mb {self.heap_mb}")


@dataclass(frozen=True, slots=True)
class HostProcess:
    """One process of a host."""

    pid: int
    parent: int
    command: tuple[str, ...]

    @property
    def is_executor(self) -> bool:
        """Return whether this is the Java of an executor."""
        return "--executor-id" in self.command


def find_gifts(processes: Iterable[HostProcess]) -> dict[int, float]:
    """Return process → its gift, for executors and the Python that each of them started.

    Python workers fork from a daemon, under the same command; their parent tells them from it. So does a fork
    of an executor that is not yet the program which it is to be.
    """
    listed = list(processes)
    java = {process.pid for process in listed if process.is_executor}
    executors = {process.pid for process in listed if process.pid in java and process.parent not in java}
    python = {process.pid for process in listed if process.parent in executors and "-m" in process.command}
    return dict.fromkeys(executors, EXECUTOR_GIFT) | dict.fromkeys(python, PYTHON_GIFT)


class WarmUp:
    """Decides whether a host runs at full speed: while the gifts of what started in it are not used up."""

    def __init__(self) -> None:
        self._began, self._started, self._until, self._rested_at = 0.0, 0.0, 0.0, 0.0
        self._known: frozenset[int] = frozenset()
        self._marked = (0.0, 0.0)

    def judge(self, gifts: Mapping[int, float], used: float, now: float, has_had_task: bool) -> bool:
        """Return whether the host is warming up; `used` are its CPU seconds so far, `now` is in seconds."""
        new = [gift for pid, gift in gifts.items() if pid not in self._known]
        self._known = frozenset(gifts)
        if new:
            self._began, self._started = used, 0.0
            self._until = max(self._until, used) + sum(new)
            self._marked = now, used
        elif gifts and now - self._marked[0] >= REST_SECONDS:
            if used - self._marked[1] < REST_SHARE * (now - self._marked[0]):
                self._note_rest(used, has_had_task)
            self._marked = now, used
        return used < self._until

    def end(self) -> None:
        """Take back what is left of the gifts."""
        self._until = 0.0

    def _note_rest(self, used: float, has_had_task: bool) -> None:
        """Take back what is left at a rest after the first task; before it, give the part of that task."""
        if used - max(self._rested_at, self._began) >= LEAST_START_SECONDS:
            self._started = used - self._began
        self._rested_at = used
        # what is used up, or was taken back, does not come again
        keeps = used < self._until and not has_had_task
        self._until = used + FIRST_TASK_SHARE * self._started if keeps else 0.0


class GroundHost:
    """A Spark worker in its control group."""

    def __init__(self, name: str, address: str, shape: HostShape, group: ControlGroup) -> None:
        self.name, self.address, self.shape = name, address, shape
        self.is_at_full_speed, self.is_paused, self.slowed = True, False, 1.0
        self._group, self._warm_up, self._lock = group, WarmUp(), threading.RLock()
        self._cores: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_released, self._kills = True, 0
        self._looked: dict[int, tuple[int, HostProcess]] = {}
        self._with_tasks: frozenset[int] = frozenset()

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start the worker at full speed, within the memory limit."""
        self._group.limit_memory(self.shape.memory_mb * MIB)
        self._process = start_server(self._group.enter(command), environment, log)

    def is_alive(self) -> bool:
        """Return whether the worker runs or is paused."""
        return self._process is not None and self._process.poll() is None

    def executors(self) -> list[int]:
        """Return the processes of its executors."""
        with self._lock:
            return sorted(process.pid for process in self._list_processes() if process.is_executor)

    def kill_executors(self) -> None:
        """End the executors with SIGKILL; the worker lives, and may start others."""
        kill_processes(set(self.executors()))

    def run_beside(self, command: Sequence[str]) -> None:
        """Start a process within the host's limits; it ends with the host at the latest."""
        subprocess.Popen(self._group.enter(command), start_new_session=True)

    def look(self) -> None:
        """Set the speed for what runs now, and end executors in which the kernel has killed for memory.

        The kernel kills the largest process, often a Python worker alone. YARN and Kubernetes end the whole
        container then, and so does a host.
        """
        with self._lock:
            if not self.is_alive() or self.is_paused:
                return
            processes = self._list_processes()
            self._set_speed(self._is_warming_up(processes) or self._is_released)
            kills = self._group.memory_kills()
            if kills > self._kills and self._process is not None:
                kill_processes({process.pid for process in processes} - {self._process.pid})
            self._kills = kills

    def release(self) -> None:
        """Run without a quota until `limit` is called."""
        with self._lock:
            self._is_released = True
            self._set_speed(True)

    def limit(self, at_once: bool = False) -> None:
        """Run under the quota once what has started is warm, or at once."""
        with self._lock:
            self._is_released = False
            if at_once:
                self._is_warming_up(self._list_processes())
                self._warm_up.end()
            self.look()

    def slow_down(self, factor: float) -> None:
        """Divide the quota by a factor; 1 is the host's own speed again."""
        if factor <= 0:
            raise BadInput(f"a factor above 0 is needed, not {factor}")
        with self._lock:
            self.slowed = factor
            self._set_speed(self.is_at_full_speed)

    def pause(self) -> None:
        """Stop all its processes where they are."""
        with self._lock:
            self._require_alive()
            self.is_paused = True
            self._group.freeze()

    def resume(self) -> None:
        """Let all its processes go on."""
        with self._lock:
            self._require_alive()
            self._group.thaw()
            self.is_paused = False

    def stop(self, patience_seconds: float = 30.0) -> None:
        """Ask the worker to end, at full speed; one that does not is left as it is."""
        with self._lock:
            if self._process is None or not self.is_alive() or self.is_paused:
                return
            self.release()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_seconds)

    def kill(self) -> None:
        """End the worker with all that it started, as a crash of the host does; may be called twice."""
        with self._lock:
            self._group.kill()
            if self._process is not None:
                self._process.wait()
            self.is_paused = False

    def remove(self) -> None:
        """Kill what runs, and remove the group."""
        with self._lock:
            self.kill()
            self._group.remove()

    def describe(self) -> dict[str, Any]:
        """Return what the host has, what state it is in, and what it has used."""
        figures = {"cpu_seconds": 0.0, "throttled_seconds": 0.0, "resident_mb": 0, "memory_kills": 0}
        with contextlib.suppress(OSError):
            figures = {
                "cpu_seconds": round(self._group.cpu_seconds(), 3),
                "throttled_seconds": round(self._group.throttled_seconds(), 3),
                "resident_mb": self._group.resident_bytes() // MIB,
                "memory_kills": self._group.memory_kills(),
            }
        return {
            "worker": self.name,
            "host": self.address,
            "cores": self.shape.cores,
            "cpu": self.shape.cpu,
            "memory_mb": self.shape.memory_mb,
            "heap_mb": self.shape.heap_mb,
            "state": "dead" if not self.is_alive() else "paused" if self.is_paused else "running",
            "full_speed": self.is_at_full_speed,
            "slowed": self.slowed,
            "executors": len(self.executors()),
            **figures,
        }

    def _is_warming_up(self, processes: Sequence[HostProcess]) -> bool:
        gifts = find_gifts(processes)
        executors = {process.pid for process in processes if process.is_executor and process.pid in gifts}
        begun = {pid for pid in executors - self._with_tasks if has_task_thread(pid)}
        self._with_tasks = (self._with_tasks & executors) | begun
        has_had_task = executors == self._with_tasks
        return self._warm_up.judge(gifts, self._group.cpu_seconds(), time.monotonic(), has_had_task)

    def _set_speed(self, full: bool) -> None:
        self.is_at_full_speed = full
        cores = None if full else self.shape.cpu / self.slowed
        if cores != self._cores:
            self._group.limit_cpu(cores)
            self._cores = cores

    def _require_alive(self) -> None:
        if not self.is_alive():
            raise ActionFailed(f"{self.name} is dead")

    def _list_processes(self) -> list[HostProcess]:
        """Return its processes; the command of one that was seen often enough is not read again."""
        before, self._looked = self._looked, {}
        for pid in self._group.processes() - {0}:
            looks, process = before.get(pid, (0, None))
            if process is None or looks < _SETTLED_LOOKS:
                process = _read_process(pid)
            if process is not None:
                self._looked[pid] = looks + 1, process
        return [process for _, process in self._looked.values()]


def has_task_thread(pid: int, processes: Path = Path("/proc")) -> bool:
    """Tell whether an executor has threads of tasks; they stay for a minute after their last task."""
    try:
        threads = [*(processes / str(pid) / "task").iterdir()]
        return any(
            (thread / "comm").read_text(encoding="utf-8").startswith(TASK_THREAD) for thread in threads
        )
    except OSError:
        return False  # a thread or the process has just ended: the next look will tell


def _read_process(pid: int) -> HostProcess | None:
    """Read a process; None if it has just ended."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return HostProcess(pid, process.ppid(), tuple(process.cmdline()))
    except psutil.Error:
        return None
