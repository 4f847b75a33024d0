"""A real Redis server on loopback, for the length of a `with`."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import wait_for


@contextmanager
def redis_server() -> Iterator[str]:
    """Run a server that keeps nothing on disk; gives its address."""
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("redis-server is not installed: `scripts/setup.sh redis` installs it where it can")
    port = _free_port()
    settings = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([program, *settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_it_answers(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_until_it_answers(port: int, process: "subprocess.Popen[bytes]") -> None:
    def answers() -> bool:
        if process.poll() is not None:
            raise RuntimeError("redis-server did not start")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    wait_for("redis-server", answers, every=0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
