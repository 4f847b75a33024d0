"""Disks that are full, covered or slow, and not imitations; they take the right to mount."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from penstock.errors import ActionFailed

DISK_MB = 4
FROZEN_SECONDS, THAWED_SECONDS = 1.0, 0.2
"""A slow disk stands still and goes on in turn."""


class SmallDisk:
    """A disk of a few megabytes, mounted at a directory, for the length of a `with`."""

    def __init__(self, megabytes: int = DISK_MB) -> None:
        self._megabytes = megabytes
        self.path = Path()

    def __enter__(self) -> SmallDisk:
        self.path = Path(tempfile.mkdtemp(prefix="penstock-disk-"))
        options = f"size={self._megabytes}m,mode=0700"
        try:
            run_command("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path))
        except ActionFailed:
            self.path.rmdir()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        run_command("umount", "--lazy", str(self.path))
        self.path.rmdir()

    def fill(self) -> None:
        """Leave no byte free."""
        with (self.path / "filler").open("ab", buffering=0) as filler:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        filler.write(b"\0" * size)
                except OSError:
                    continue

    def empty(self) -> None:
        """Give the room back."""
        (self.path / "filler").unlink(missing_ok=True)

    def cover(self, directory: Path) -> None:
        """Put a copy of a directory that can only be read over it.

        The disk itself cannot be made so: files are open on it.
        """
        copy = self.path / "copy"
        copy.mkdir()
        run_command("mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", str(copy))
        shutil.copytree(directory, copy, dirs_exist_ok=True)
        run_command("mount", "-o", "remount,ro", str(copy))
        run_command("mount", "--bind", str(copy), str(directory))

    def uncover(self, directory: Path) -> None:
        """Take the copy away."""
        run_command("umount", "--lazy", str(directory))
        run_command("umount", "--lazy", str(self.path / "copy"))
        (self.path / "copy").rmdir()


class LoopDisk(SmallDisk):
    """A small disk at a given directory, for the length of a `with`.

    It is a file with a file system of its own, which is frozen again and again to make it slow.
    """

    def __init__(self, directory: Path, megabytes: int = 64) -> None:
        super().__init__(megabytes)
        self.path, self._image = directory, directory.with_name(f"{directory.name}.image")

    def __enter__(self) -> LoopDisk:
        self.path.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(self._megabytes << 20)
        run_command("mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(self._image))
        run_command("mount", "-o", "loop", str(self._image), str(self.path))
        return self

    def __exit__(self, *error: object) -> None:
        run_command("umount", "--lazy", str(self.path))
        self._image.unlink()

    def slow_down(self, seconds: float) -> None:
        """Let it stand still for most of the time, for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            run_command("fsfreeze", "--freeze", str(self.path))
            try:
                time.sleep(FROZEN_SECONDS)
            finally:
                run_command("fsfreeze", "--unfreeze", str(self.path))
            time.sleep(THAWED_SECONDS)


def run_command(*command: str) -> None:
    """Run a command of the system; ActionFailed says what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ActionFailed(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
