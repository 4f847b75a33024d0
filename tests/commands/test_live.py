"""`penstock watch`, `status`, `pause` and `resume`: talking to a running application."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import perform
from penstock.runtime.control import ControlServer
from tests.commands.command_line import COMMAND, ROOT, Captured, complaint, last_json
from tests.view import made_up
from tests.waiting import wait_for


@contextmanager
def application(directory: Path, **changes: Any) -> Iterator[list[str]]:
    """A stand-in for a running application; yields the commands it was sent."""
    commands: list[str] = []
    status = made_up.status(**changes)

    def handler(command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        commands.append(command)
        if command == "hello":
            return {"application": status["application"], "name": status["name"]}
        return {"status": status} if command == "status" else {"paused": command == "pause"}

    with closing(ControlServer(directory / "run", status["application"], handler)):
        yield commands


@pytest.mark.parametrize("command", ["watch", "status", "pause", "resume"])
def test_none_running(capsys: Captured, config: list[str], command: str) -> None:
    assert perform([command, *config]) == 1
    assert "no application" in complaint(capsys)


def test_an_unknown_application_is_bad_input(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with application(tmp_path):
        assert perform(["watch", "other", *config]) == 2
    assert "'other'; running: app-20251116000000-0001" in complaint(capsys)


def test_several_running_are_listed(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with application(tmp_path), application(tmp_path, application="app-9"):
        assert perform(["status", *config]) == 2
        assert "app-9" in complaint(capsys)
        assert perform(["status", "app-9", *config]) == 0


@pytest.mark.parametrize("arguments", [["watch", "--once"], ["status"]])
def test_the_status_once(capsys: Captured, config: list[str], tmp_path: Path, arguments: list[str]) -> None:
    with application(tmp_path):
        assert perform([*arguments, *config]) == 0
        assert "slots held 4" in capsys.readouterr().out
        assert perform([*arguments, *config, "--json"]) == 0
    assert last_json(capsys)["slots"] == 4


def test_a_page_on_the_side(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with application(tmp_path):
        assert perform(["status", *config, "--html", str(tmp_path / "page.html"), "--json"]) == 0
    assert last_json(capsys)["slots"] == 4
    assert "counts needs 10 slots" in (tmp_path / "page.html").read_text()


def test_pause_and_resume(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with application(tmp_path) as commands:
        assert perform(["pause", *config, "--json"]) == 0
        assert last_json(capsys)["paused"] is True
        assert perform(["resume", *config]) == 0
        assert "is running" in capsys.readouterr().out
    assert [command for command in commands if command != "hello"] == ["pause", "resume"]


def test_watch_prints_a_line_per_update_until_the_application_ends(
    capsys: Captured, config: list[str], tmp_path: Path
) -> None:
    ended = threading.Event()

    def run() -> None:
        with application(tmp_path) as commands:
            ready.set()
            wait_for("two questions", lambda: commands.count("status") >= 2, every=0.01)
        ended.set()

    ready = threading.Event()
    threading.Thread(target=run, daemon=True).start()
    assert ready.wait(60)
    assert perform(["watch", *config]) == 0
    caught = capsys.readouterr()
    assert ended.is_set()
    assert caught.out.count("counts 518/s offered") == 2
    assert "has ended" in caught.err


def test_watch_on_a_terminal_is_left_with_control_c(config: list[str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    surroundings = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "50"}
    with application(tmp_path):
        with interruptible():
            watching = subprocess.Popen(
                [*COMMAND, "watch", *config], stdout=theirs, cwd=ROOT, env=surroundings
            )
        shown = ""
        while "word <count>" not in shown:
            readable, _, _ = select.select([ours], [], [], 30)
            assert readable, f"nothing more was shown than {shown!r}"
            shown += os.read(ours, 4000).decode(errors="replace")
        # the rest must be read too, or the view would wait for room in the terminal
        threading.Thread(target=drain, args=(ours,), daemon=True).start()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
    os.close(theirs)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """What is started here heeds Control-C, also where the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def drain(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 4000):
            pass
