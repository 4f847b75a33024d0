"""A small disk that can be slow: a file with a file system of its own, which is frozen again and again."""

from __future__ import annotations

import time
from pathlib import Path

from penstock_lab.experiments.faults.journals import SmallDisk, run_command

FROZEN_SECONDS, THAWED_SECONDS = 1.0, 0.2


class LoopDisk(SmallDisk):
    """A disk at a given directory, for the length of a `with`."""

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
