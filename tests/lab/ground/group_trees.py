"""Stand-ins for mounted control groups: ordinary directories with the files that the kernel would show."""

from __future__ import annotations

from pathlib import Path

from penstock_lab.ground.control_groups import ControlGroup
from penstock_lab.ground.group_layouts import Version1

VERSION_1_MEMBERSHIP = """5:memory:/jobs/mine
3:freezer:/
2:cpu,cpuacct:/jobs/mine
0::/
"""


def make_version_1(mount: Path) -> str:
    """Make a tree for each controller, with this process in `/jobs/mine`; return its membership."""
    for controller in Version1.controllers:
        for group in (mount / controller, mount / controller / "jobs" / "mine"):
            group.mkdir(parents=True)
            (group / "cgroup.procs").touch()
    return VERSION_1_MEMBERSHIP


def make_version_2(mount: Path, passed_on: str = "") -> str:
    """Make one tree; the group above the own one passes these controllers on. Return the membership."""
    mine = mount / "jobs" / "mine"
    mine.mkdir(parents=True)
    (mount / "cgroup.controllers").write_text("cpu io memory pids")
    for group, controllers in ((mount, "cpu memory"), (mine.parent, passed_on), (mine, "")):
        (group / "cgroup.subtree_control").write_text(controllers)
        (group / "cgroup.procs").write_text("4711\n" if group == mine else "")
    return "0::/jobs/mine\n"


def show_figures(group: ControlGroup, cpu_seconds: float = 0.0, memory_kills: int = 0) -> None:
    """Let a group of version 1 show these figures."""
    (group.folders["cpuacct"] / "cpuacct.usage").write_text(str(round(cpu_seconds * 1e9)))
    (group.folders["memory"] / "memory.oom_control").write_text(f"under_oom 0\noom_kill {memory_kills}\n")


def add_process(group: ControlGroup, pid: int) -> None:
    """Let a process be one of the group's."""
    for folder in group.directories:
        with (folder / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")


def read_settings(folder: Path) -> dict[str, str]:
    """Return the files that were written in a group."""
    return {file.name: file.read_text() for file in folder.iterdir()}
