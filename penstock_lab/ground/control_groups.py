"""Linux control groups, versions 1 and 2: a CPU quota, a memory limit and a freezer for a tree of processes.

New groups lie below the group of this process, so its own limits hold for them too. Version 2 forbids that
while the group has processes itself: there the nearest ancestor that can pass the controllers on is taken.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from penstock.errors import ActionFailed, Unsupported
from penstock_lab.ground.group_layouts import GroupFigure, GroupLayout, Setting, Version1, Version2, quota_us

MOUNT = Path("/sys/fs/cgroup")
PATIENCE_SECONDS = 20.0
_POLL_SECONDS = 0.02


class GroupsUnavailable(Unsupported):
    """Control groups cannot be made here; the message says why, and what would help."""


class ControlGroup:
    """The processes of one group: they share a quota and a limit, and can be frozen and killed together.

    `folders`: controller → the group's directory. One that a crash left half removed has fewer of them.
    """

    def __init__(self, name: str, layout: GroupLayout, folders: Mapping[str, Path]) -> None:
        self.name, self.layout, self.folders = name, layout, dict(folders)

    @property
    def directories(self) -> list[Path]:
        """Return each directory once."""
        return sorted(set(self.folders.values()))

    def limit_cpu(self, cores: float | None) -> None:
        """Give the group so many cores, or as many as there are."""
        self._apply(self.layout.limit_cpu(quota_us(cores)))

    def limit_memory(self, size_bytes: int) -> None:
        """Let the kernel kill in this group when it holds more than that; swap counts."""
        swap_counts = (self.folders["memory"] / self.layout.swap_file).exists()
        self._apply(self.layout.limit_memory(size_bytes, swap_counts))

    def freeze(self) -> None:
        """Stop all processes, and wait until they have stopped.

        Version 1 misses a process that waits for the first steps of a child when it is asked; it stops when
        asked again.
        """
        controller, file, stopped = self.layout.frozen_text
        for _ in _retry(f"{self.name} does not freeze"):
            self._apply([self.layout.freeze(True)])
            if stopped in (self.folders[controller] / file).read_text("ascii"):
                return

    def thaw(self) -> None:
        """Let all processes go on."""
        self._apply([self.layout.freeze(False)])

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes that ever were in the group."""
        return self._read(self.layout.cpu_seconds)

    def throttled_seconds(self) -> float:
        """Return how long the group had to wait for its next period."""
        return self._read(self.layout.throttled_seconds)

    def resident_bytes(self) -> int:
        """Return the memory of its processes, without the page cache, which the kernel can take back."""
        return int(self._read(self.layout.resident_bytes))

    def memory_kills(self) -> int:
        """Return how many processes the kernel has killed for the memory limit."""
        return int(self._read(self.layout.memory_kills))

    def enter(self, command: Sequence[str]) -> list[str]:
        """Wrap a command so that it, and all that it starts, runs in the group from the first moment."""
        files = (shlex.quote(str(folder / "cgroup.procs")) for folder in self.directories)
        script = "".join(f"echo $$ > {file} && " for file in files) + 'exec "$@"'
        return ["/bin/sh", "-c", script, "sh", *command]

    def processes(self) -> set[int]:
        """Return the ids of its processes; 0 stands for those of another process namespace."""
        found: set[int] = set()
        for folder in self.directories:
            with contextlib.suppress(OSError):  # somebody else removes it, too
                found |= {int(word) for word in (folder / "cgroup.procs").read_text("ascii").split()}
        return found

    def kill(self) -> None:
        """End all processes, frozen or not, and wait until they are gone."""
        for _ in _retry(f"processes of {self.name} do not end"):
            running = self.processes() - {0}
            if not running:
                return
            kill_processes(running)
            with contextlib.suppress(KeyError, GroupsUnavailable):  # half removed, or removed meanwhile
                self.thaw()  # a frozen process dies when it goes on

    def remove(self) -> None:
        """Remove the group, which must have no processes; what is gone already is no error."""
        for folder in self.directories:
            for _ in _retry(f"{folder} cannot be removed"):
                # a process that has just been killed may still be on its way out
                if remove_folder(folder):
                    break

    def _apply(self, settings: Sequence[Setting]) -> None:
        for setting in settings:
            write_value(self.folders[setting.controller] / setting.file, setting.value)

    def _read(self, figure: GroupFigure) -> float:
        return figure.find_in((self.folders[figure.controller] / figure.file).read_text("ascii"))


class Hierarchy:
    """Where groups are made: `parents` has, for each controller, the group below which they lie."""

    def __init__(self, mount: Path, layout: GroupLayout, parents: Mapping[str, Path]) -> None:
        self.layout, self.parents = layout, dict(parents)
        self._mount = mount

    @property
    def version(self) -> int:
        """Return the version of the kernel's interface."""
        return 1 if isinstance(self.layout, Version1) else 2

    def make(self, name: str) -> ControlGroup:
        """Make a group without limits."""
        folders = {controller: parent / name for controller, parent in self.parents.items()}
        group = ControlGroup(name, self.layout, folders)
        made: list[Path] = []
        try:
            for folder in group.directories:
                folder.mkdir()
                made.append(folder)
        except OSError as error:
            for folder in made:
                folder.rmdir()
            raise _explain(f"the control group {name} cannot be made", error) from error
        return group

    def find(self, prefix: str) -> list[ControlGroup]:
        """Return all groups whose name begins so, wherever they lie."""
        found: dict[str, dict[str, Path]] = {}
        for controller in self.parents:
            top = self._mount / controller if self.version == 1 else self._mount
            for directory, below, _ in os.walk(top):
                for name in below:
                    if name.startswith(prefix):
                        found.setdefault(name, {})[controller] = Path(directory) / name
        return [ControlGroup(name, self.layout, folders) for name, folders in sorted(found.items())]


def find_hierarchy(mount: Path = MOUNT, membership: str | None = None) -> Hierarchy:
    """Find where this process may make groups; `membership` is the text of its `/proc/self/cgroup`."""
    if membership is None:
        file = Path("/proc/self/cgroup")
        membership = file.read_text(encoding="utf-8") if file.exists() else ""
    own = {
        controller: path
        for line in membership.splitlines()
        for controllers, path in (line.split(":", 2)[1:],)
        for controller in controllers.split(",")
    }
    if (mount / "cgroup.controllers").is_file():
        parent = _find_delegating(mount, _group_at(mount, own.get("", "/")))
        return Hierarchy(mount, Version2(), dict.fromkeys(Version2.controllers, parent))
    trees = {name: mount / name for name in Version1.controllers}
    missing = [name for name, tree in trees.items() if not (tree / "cgroup.procs").is_file()]
    if missing:
        raise GroupsUnavailable(
            f"{mount} has no control groups for {', '.join(missing)}; a Linux that mounts them is needed"
        )
    parents = {name: _group_at(tree, own.get(name, "/")) for name, tree in trees.items()}
    return Hierarchy(mount, Version1(), parents)


def explain_refusal(mount: Path = MOUNT, membership: str | None = None) -> str | None:
    """Return why groups with limits cannot be made here, in one sentence; None if they can: it is tried."""
    try:
        group = find_hierarchy(mount, membership).make(f"penstock-trial-{os.getpid()}-{time.monotonic_ns()}")
        try:
            group.limit_cpu(1.0)
            group.limit_memory(1 << 30)
        finally:
            group.remove()
    except (GroupsUnavailable, ActionFailed) as error:
        return str(error)
    return None


def write_value(file: Path, value: int | str) -> None:
    """Write one of the kernel's settings."""
    try:
        file.write_text(str(value), encoding="ascii")
    except OSError as error:
        raise _explain(f"{file} does not take {value}", error) from error


def kill_processes(processes: set[int]) -> None:
    """End these processes as a crash does; those that have ended already are no error."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def remove_folder(folder: Path) -> bool:
    """Remove the directory of a group; return False while something is still in it."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise ActionFailed(f"{folder} cannot be removed: {error.strerror}") from error
    return True


def _explain(what: str, error: OSError) -> GroupsUnavailable:
    advice = {
        errno.EACCES: "run as root, or in a group that was delegated to you",
        errno.EPERM: "run as root, or in a group that was delegated to you",
        errno.EBUSY: "processes live in that group itself; ask the service manager for a delegated one",
        errno.EROFS: "the container mounts control groups read-only; start it with writable ones",
    }.get(error.errno or 0)
    return GroupsUnavailable(f"{what}: {error.strerror}" + (f"; {advice}" if advice else ""))


def _group_at(tree: Path, path: str) -> Path:
    """Return the directory of a group, or the top where a container shows the path that its host knows."""
    found = tree / path.lstrip("/")
    return found if found.is_dir() else tree


def _find_delegating(mount: Path, own: Path) -> Path:
    """Return the nearest group, from the own one up, whose children get the controllers."""
    refusal = ""
    for candidate in (own, *own.parents):
        try:
            _pass_controllers_on(candidate, is_top=candidate == mount)
            return candidate
        except GroupsUnavailable as error:
            refusal = str(error)
        if candidate == mount:
            break
    raise GroupsUnavailable(f"no control group passes cpu and memory on to new ones: {refusal}")


def _pass_controllers_on(group: Path, is_top: bool) -> None:
    file = group / "cgroup.subtree_control"
    if set(Version2.controllers) <= set(file.read_text("ascii").split()):
        return
    if not is_top and (group / "cgroup.procs").read_text("ascii").strip():
        raise GroupsUnavailable(f"{group} holds processes itself")
    write_value(file, " ".join(f"+{controller}" for controller in Version2.controllers))


def _retry(failure: str) -> Iterator[None]:
    """Repeat the body of a loop until it is left; raise when patience ends."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        yield
        time.sleep(_POLL_SECONDS)
    raise ActionFailed(f"{failure} within {PATIENCE_SECONDS:g} s")
