"""`penstock dashboard`, and a driver that serves the dashboard itself."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from penstock.cli import perform
from penstock.errors import BadInput
from penstock.runtime.beside import serve_dashboard
from penstock.settings.model import Settings
from penstock.view.dashboard.server import Address, parse_address
from tests.commands.command_line import COMMAND, Captured, complaint
from tests.view.dashboard.served import wait_until_served
from tests.waiting import started


def test_it_says_where_it_is_serves_and_ends_with_an_interrupt(tmp_path: Path) -> None:
    settings = tmp_path / "penstock.yaml"
    settings.write_text(
        f"runtime_directory: {tmp_path}/run\njournal: {tmp_path}/j.db\ndashboard_read_only: true\n"
    )
    words = ["dashboard", "--address", "127.0.0.1:0", "--config", str(settings), "--json"]
    with started(
        [*COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        told = json.loads(process.stdout.readline())
        assert told["read_only"] is True
        with httpx.Client(base_url=told["address"]) as client:
            wait_until_served(client)
            assert "No application with an attached autopilot runs" in client.get("/").text
        process.send_signal(signal.SIGINT)
        process.wait(30)
        assert process.returncode in (0, -signal.SIGINT, 130) and "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--address", "4050x"], "is no address"),
        (["--address", "0.0.0.0:0", "--token", "short"], "16 characters"),
    ],
)
def test_bad_usage_is_told_in_one_line(words: list[str], said: str, capsys: Captured) -> None:
    assert perform(["dashboard", *words]) == 2
    assert said in complaint(capsys)


def test_a_port_that_is_taken_is_told(capsys: Captured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert perform(["dashboard", "--address", f"127.0.0.1:{taken.getsockname()[1]}"]) == 1
    assert "cannot listen" in complaint(capsys)


def test_addresses() -> None:
    assert parse_address("4050") == Address("127.0.0.1", 4050)
    assert str(parse_address("[::1]:80")) == "[::1]:80"
    for wrong in ("", "host:", ":80", "a:99999", "a:-1"):
        with pytest.raises(BadInput):
            parse_address(wrong)


def test_a_driver_serves_it_where_a_setting_asks_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    places = {"runtime_directory": str(tmp_path / "run"), "journal": str(tmp_path / "j.db")}
    caplog.set_level(logging.INFO, "penstock.runtime.beside")
    with serve_dashboard(Settings(**places, dashboard="127.0.0.1:0"), "app-1"):
        address = caplog.messages[-1].rpartition(" ")[2]
        with httpx.Client(base_url=address) as client:
            wait_until_served(client)
    with serve_dashboard(Settings(**places), "app-1"):
        assert len(caplog.messages) == 1


def test_a_driver_runs_on_where_the_port_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = Settings(runtime_directory=str(tmp_path / "run"), dashboard=address)
        with serve_dashboard(settings, "app-1"):
            assert "no dashboard: cannot listen" in caplog.text


def test_the_report_of_one_log_is_served_on_loopback(tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "no-log"
    log.write_text("nonsense\n")
    with started(
        [*COMMAND, "diagnose", "--serve", str(log), "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = httpx.URL(json.loads(process.stdout.readline())["address"])
        assert address.host == "127.0.0.1"
        with httpx.Client(base_url=address.copy_with(path="/")) as client:
            wait_until_served(client)
            assert "no-log" in client.get(address.path).text
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert perform(["diagnose", "--serve", str(log), "--html", "x.html"]) == 2
    assert "--html does not go with --serve" in complaint(capsys)
    assert perform(["diagnose", "--serve", str(tmp_path / "none")]) == 2
    assert "no such file" in complaint(capsys)
