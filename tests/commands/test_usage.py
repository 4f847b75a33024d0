"""Bad usage of any command: one line on standard error, exit code 2, and with --json one object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from penstock.cli import app, perform

Captured = pytest.CaptureFixture[str]


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All commands, those of groups by their full names."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path
    for name in inner or ():
        yield from leaves(inner[name], (*path, name))


COMMANDS = sorted(leaves(typer.main.get_command(app)))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_unknown_option_is_one_line_and_one_object(command: tuple[str, ...], capsys: Captured) -> None:
    assert perform([*command, "--json", "--no-such-option"]) == 2
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    answer = json.loads(shown.out.splitlines()[-1])
    assert line == f"penstock: error: {answer['error']}"
    assert "--no-such-option" in line


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_json_standard_output_stays_empty(command: tuple[str, ...], capsys: Captured) -> None:
    assert perform([*command, "--no-such-option"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--json"], "--json"),
        (["nonsense", "--json"], "nonsense"),
        (["decide", "--json"], "--topology"),
        (["simulate", "--seed", "-1", "--json"], "--seed"),
        (["run", "--json"], "JOB.PY"),
        (["run", "--policy", "ds2", "--json", "--nope", "job.py"], "--nope"),
    ],
)
def test_whatever_is_wrong_is_said_in_the_object(arguments: list[str], said: str, capsys: Captured) -> None:
    assert perform(arguments) == 2
    assert said in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--nope", "job.py", "--json"],
        ["run", "--policy", "ds2", "--nope", "job.py", "--json"],
        ["simulate", "--seed", "x", "--", "--json"],
    ],
)
def test_what_stands_behind_the_script_or_two_dashes_is_not_ours(
    arguments: list[str], capsys: Captured
) -> None:
    assert perform(arguments) == 2
    assert capsys.readouterr().out == ""
