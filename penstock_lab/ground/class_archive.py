"""Archives of loaded classes, with which Spark's processes start in half the CPU time.

Java writes one at the end of a process that was started with `training`: a worker of the first ground, a
driver in `class_training`. It ignores an archive that does not fit its version, the class path or the jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from penstock_lab.ground.java_servers import find_cache, find_java

ARCHIVES_KEPT = 3
"""Of each kind: every environment has its own, of up to 200 MB."""


class ClassArchive:
    """The archive of one kind of process for the jars and the Java in use, in the user's cache directory."""

    def __init__(self, kind: str, jars: Path | None = None, cache: Path | None = None) -> None:
        jars = jars or find_spark() / "jars"
        directory = find_cache() if cache is None else cache
        self._kind, self._jars = kind, jars
        self._file = directory / f"{kind}-classes-{_identify(jars)}.jsa"
        self._unfinished = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        self._empty = directory / "no-configuration"

    @property
    def class_path(self) -> str:
        """The one that Spark 4.3 gives executors whose configuration directory is `configuration`."""
        first = sorted(str(jar) for jar in self._jars.glob("slf4j-api-*.jar"))
        return ":".join((f"{self._empty}/", *first, f"{self._jars}/*"))

    @property
    def configuration(self) -> Path:
        """An empty directory: Java archives nothing if a directory of the class path holds files."""
        self._empty.mkdir(parents=True, exist_ok=True)
        return self._empty

    def exists(self) -> bool:
        """Return whether it can be used."""
        return self._file.is_file()

    @property
    def options(self) -> list[str]:
        """Return Java's options to use it."""
        return [f"-XX:SharedArchiveFile={self._file}"] if self.exists() else []

    @property
    def training(self) -> list[str]:
        """Return Java's options to write it when the process ends."""
        return [f"-XX:ArchiveClassesAtExit={self._unfinished}"]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let one process write it at a time: the others wait, and find it written."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def keep(self) -> None:
        """Take what a trained process has written, if it has; others see all of it or nothing."""
        if self._unfinished.is_file():
            self._unfinished.rename(self._file)
            kept = sorted(
                self._file.parent.glob(f"{self._kind}-classes-*.jsa"), key=lambda one: one.stat().st_mtime
            )
            for old in kept[:-ARCHIVES_KEPT]:
                old.unlink(missing_ok=True)


def find_spark() -> Path:
    """Return the directory of the Spark in use."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _identify(jars: Path) -> str:
    """Return a name for these jars and this Java: its release file changes with every update."""
    java = Path(shutil.which(find_java()) or find_java()).resolve()
    release = java.parent.parent / "release"
    parts = (
        str(jars),
        str(jars.stat().st_mtime_ns),
        str(java),
        release.read_text() if release.is_file() else "",
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
