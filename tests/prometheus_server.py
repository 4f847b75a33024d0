"""A real Prometheus on loopback that scrapes one address, for the length of a `with`; and promtool."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import yaml

from tests.waiting import wait_for


class Prometheus:
    """Answers questions over its API."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now; an expression that is none is an error."""
        with urlopen(f"{self.url}/api/v1/query?query={quote(expression)}", timeout=60) as answer:
            told = json.load(answer)
        assert told["status"] == "success"
        return told["data"]["result"]

    def rules(self) -> list[dict[str, Any]]:
        with urlopen(f"{self.url}/api/v1/rules", timeout=60) as answer:
            return json.load(answer)["data"]["groups"][0]["rules"]


@contextmanager
def prometheus_server(
    directory: Path, target: str, token_file: Path, rules: Path, every: str = "200ms"
) -> Iterator[Prometheus]:
    """Run a server that scrapes this target with this token, and knows these rules."""
    scrape = {"job_name": "penstock", "static_configs": [{"targets": [target]}]}
    config = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(rules)],
        "scrape_configs": [{**scrape, "authorization": {"credentials_file": str(token_file)}}],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = _free_port()
    options = [f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'data'}"]
    process = subprocess.Popen(
        [_program("prometheus"), *options, f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for("Prometheus", lambda: _answers(port, process))
        yield Prometheus(port)
    finally:
        process.kill()
        process.wait()


def promtool(*arguments: str) -> str:
    """Run promtool, and return what it says; an error is one of the test."""
    done = subprocess.run(
        [_program("promtool"), *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise RuntimeError("Prometheus did not start")
    try:
        with urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed: `scripts/setup.sh prometheus` installs it where it can")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
