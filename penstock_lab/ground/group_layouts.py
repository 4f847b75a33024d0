"""The files of Linux control groups, versions 1 and 2: what to write for a limit and read for a figure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

PERIOD_US = 100_000
"""The period of a quota, as Kubernetes has it: 0.15 core run 15 ms of every 100 ms."""

LEAST_QUOTA_US = 1_000
"""The kernel refuses less."""


def quota_us(cores: float | None) -> int | None:
    """Return the microseconds of each period that so many cores are; None is without a limit."""
    return None if cores is None else max(LEAST_QUOTA_US, round(cores * PERIOD_US))


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, and the controller and file that it is written to."""

    controller: str
    file: str
    value: int | str


@dataclass(frozen=True, slots=True)
class GroupFigure:
    """Where a number stands: alone in a file, or in a line `key number`; and how many of it make one unit."""

    controller: str
    file: str
    key: str = ""
    per_unit: float = 1.0

    def find_in(self, text: str) -> float:
        """Return the number, in units, that the file's text gives; 0 if it has no such line."""
        if not self.key:
            return int(text) / self.per_unit
        lines = dict(line.split(maxsplit=1) for line in text.splitlines())
        return int(lines.get(self.key, 0)) / self.per_unit


class GroupLayout(ABC):
    """The files of one version of the kernel's interface."""

    controllers: tuple[str, ...]
    cpu_seconds: GroupFigure
    throttled_seconds: GroupFigure
    resident_bytes: GroupFigure
    memory_kills: GroupFigure
    swap_file: str
    frozen_text: tuple[str, str, str]
    """Controller, file, and what stands in it once every process has stopped."""

    @abstractmethod
    def limit_cpu(self, quota: int | None) -> list[Setting]:
        """Return the settings for a quota in microseconds of each period, or for none."""

    @abstractmethod
    def limit_memory(self, size_bytes: int, swap_counts: bool) -> list[Setting]:
        """Return the settings that let the group hold no more, in swap neither where it is counted."""

    @abstractmethod
    def freeze(self, frozen: bool) -> Setting:
        """Return the setting that stops all processes, or lets them go on."""


class Version1(GroupLayout):
    """A tree of its own for each controller."""

    controllers = ("cpu", "cpuacct", "memory", "freezer")
    cpu_seconds = GroupFigure("cpuacct", "cpuacct.usage", per_unit=1e9)
    throttled_seconds = GroupFigure("cpu", "cpu.stat", "throttled_time", 1e9)
    resident_bytes = GroupFigure("memory", "memory.stat", "total_rss")
    memory_kills = GroupFigure("memory", "memory.oom_control", "oom_kill")
    frozen_text = ("freezer", "freezer.state", "FROZEN")
    swap_file = "memory.memsw.limit_in_bytes"

    def limit_cpu(self, quota: int | None) -> list[Setting]:
        """Return the period and the quota."""
        period = Setting("cpu", "cpu.cfs_period_us", PERIOD_US)
        return [period, Setting("cpu", "cpu.cfs_quota_us", -1 if quota is None else quota)]

    def limit_memory(self, size_bytes: int, swap_counts: bool) -> list[Setting]:
        """Return the limit of memory, and that with swap, which may never be the smaller one."""
        memory = Setting("memory", "memory.limit_in_bytes", size_bytes)
        if not swap_counts:
            return [memory]
        lifted, together = (Setting("memory", self.swap_file, size) for size in (-1, size_bytes))
        return [lifted, memory, together]

    def freeze(self, frozen: bool) -> Setting:
        """Return the freezer's state."""
        return Setting("freezer", "freezer.state", "FROZEN" if frozen else "THAWED")


class Version2(GroupLayout):
    """One tree for all controllers; the freezer is part of every group."""

    controllers = ("cpu", "memory")
    cpu_seconds = GroupFigure("cpu", "cpu.stat", "usage_usec", 1e6)
    throttled_seconds = GroupFigure("cpu", "cpu.stat", "throttled_usec", 1e6)
    resident_bytes = GroupFigure("memory", "memory.stat", "anon")
    memory_kills = GroupFigure("memory", "memory.events", "oom_kill")
    frozen_text = ("cpu", "cgroup.events", "frozen 1")
    swap_file = "memory.swap.max"

    def limit_cpu(self, quota: int | None) -> list[Setting]:
        """Return quota and period in one."""
        return [Setting("cpu", "cpu.max", f"{'max' if quota is None else quota} {PERIOD_US}")]

    def limit_memory(self, size_bytes: int, swap_counts: bool) -> list[Setting]:
        """Return the limit of memory, and no swap."""
        memory = Setting("memory", "memory.max", size_bytes)
        return [memory, Setting("memory", self.swap_file, 0)] if swap_counts else [memory]

    def freeze(self, frozen: bool) -> Setting:
        """Return the freezer's state."""
        return Setting("cpu", "cgroup.freeze", int(frozen))
