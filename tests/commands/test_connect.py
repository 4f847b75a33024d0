"""`penstock connect-server` before Spark: what cannot be served is refused at once, with the way out."""

from __future__ import annotations

import socket

import pytest

from penstock.cli import perform
from tests.commands.command_line import Captured, complaint


@pytest.mark.parametrize("by", ["--port", "--conf"])
def test_a_port_that_is_taken_is_told_before_spark_is_up(
    capsys: Captured, config: list[str], by: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        asked = [by, port if by == "--port" else f"spark.connect.grpc.binding.port={port}"]
        assert perform(["connect-server", *config, *asked]) == 1
    said = complaint(capsys)
    assert f"cannot serve at 127.0.0.1:{port}: another process listens there; choose another" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "65536"], "--port"),
        (["--conf", "spark.connect.grpc.binding.port=ssh"], "a port from 0 to 65535 is expected, not 'ssh'"),
        (["--policy", "ds3"], "did you mean 'ds2'?"),
        (["--config", "none.yaml"], "none.yaml"),
        (["job.py"], "unexpected extra argument"),
    ],
)
def test_bad_usage_is_one_line(capsys: Captured, arguments: list[str], said: str) -> None:
    assert perform(["connect-server", *arguments]) == 2
    assert said in complaint(capsys)
