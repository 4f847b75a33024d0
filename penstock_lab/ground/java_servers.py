"""Java servers of the ground: the Java that runs them, ports that are free, starting them, and their logs."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def find_java() -> str:
    """Return the Java that Spark takes, too."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def find_cache() -> Path:
    """Return the directory for what is fetched or made once."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def find_free_ports(count: int) -> list[int]:
    """Return ports of the loopback that nobody listens on, each another one."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start_server(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a server that writes to a log; an interrupt from the keyboard is for its owner to handle."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def read_tail(log: Path, characters: int = 2000) -> str:
    """Return the end of a server's log, for the message that it did not start."""
    return log.read_text(encoding="utf-8", errors="replace")[-characters:]
