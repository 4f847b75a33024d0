"""A dashboard in a process of its own, as people start it, and a page of it that is held open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import psutil

from penstock.errors import ActionFailed

_FOLLOW = """
import sys
from urllib.request import ProxyHandler, build_opener
with build_opener(ProxyHandler({})).open(sys.argv[1]) as page:
    print(len(page.readline()), flush=True)
    for line in page:
        pass
"""


@contextmanager
def serve_dashboard(directory: Path, *more: str) -> Iterator[tuple[psutil.Process, str]]:
    """Run `penstock dashboard` on a free port, over the sockets and the journal in a directory."""
    settings = directory / "settings.yaml"
    settings.write_text(f"runtime_directory: {directory}/run\njournal: {directory}/journal.db\n")
    words = ["dashboard", "--address", "127.0.0.1:0", "--config", str(settings), "--json", *more]
    with subprocess.Popen([sys.executable, "-m", "penstock.cli", *words], stdout=subprocess.PIPE) as process:
        try:
            line = _read_line(process)
            if not line:
                raise ActionFailed("the dashboard did not start")
            yield psutil.Process(process.pid), str(orjson.loads(line)["address"])
        finally:
            process.terminate()


@contextmanager
def follow_events(address: str) -> Iterator[None]:
    """Receive what a page is sent, in a process of its own, from its first event on."""
    with subprocess.Popen([sys.executable, "-c", _FOLLOW, address], stdout=subprocess.PIPE) as process:
        try:
            if not _read_line(process):
                raise ActionFailed(f"{address} sent nothing")
            yield
            if process.poll() is not None:
                raise ActionFailed(f"{address} ended while it was followed")
        finally:
            process.terminate()


def _read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()
