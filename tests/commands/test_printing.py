"""What is printed reaches a reader whatever standard output is: another encoding, closed, or full."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.commands.printing import json_line
from tests.commands.command_line import COMMAND, ROOT, Captured

TOPOLOGY = "0,source,1,1,größe,2\n"
RATES = "0,0,1,10,0,2000,0,1000\n1,0,2,10,500,0,500,0\n1,1,2,10,500,0,500,0\n"


@pytest.fixture
def decide(tmp_path: Path) -> list[str]:
    """A decision that is told with an arrow, on an operator that has a letter beyond ASCII."""
    (tmp_path / "topology.csv").write_text(TOPOLOGY, encoding="utf-8")
    (tmp_path / "rates.csv").write_text(RATES, encoding="utf-8")
    files = ["--topology", str(tmp_path / "topology.csv"), "--rates", str(tmp_path / "rates.csv")]
    return ["decide", "--policy", "ds2-learned", *files]


def printed(arguments: list[str], encoding: str) -> bytes:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([*COMMAND, *arguments], cwd=ROOT, env=environment, capture_output=True, check=True)
    return done.stdout


def test_an_encoding_without_a_character_shows_a_question_mark(decide: list[str]) -> None:
    assert "größe 2 ? 4" in printed(decide, "latin-1").decode("latin-1")


def test_json_holds_every_character_in_every_encoding(decide: list[str]) -> None:
    (epoch,) = json.loads(printed([*decide, "--json"], "latin-1").decode("ascii"))["epochs"]
    assert epoch["parallelism"] == {"größe": 4}
    assert "größe 2 → 4" in epoch["reason"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_closed_standard_output_is_no_failure(decide: list[str], options: list[str]) -> None:
    closing = ["sh", "-c", 'exec "$@" >&-', "sh"]
    command = [*closing, *COMMAND, *decide, *options]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_standard_output_is_one_line(options: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [*COMMAND, "policies", *options]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("penstock: error: standard output cannot be written: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["decide", "--topology", "\udcff.csv", "--rates", "rates.csv"],
        ["simulate", "\udcff"],
        ["diagnose", "\udcff.parquet"],
        ["override", "\udcff", "--pin", "heap", "--journal", "{}/journal.db"],
    ],
)
def test_bytes_that_are_no_text_are_told_in_the_object(
    arguments: list[str], capsys: Captured, tmp_path: Path
) -> None:
    assert perform([*(word.format(tmp_path) for word in arguments), "--json"]) == 2
    told = capsys.readouterr()
    assert "\\udcff" in json.loads(told.out)["error"]
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [["diagnose", "{}"], ["simulate", "{}/x"], ["run", "{}"], ["replay", "{}"], ["fleet", "status", "{}"]],
)
def test_a_path_that_the_system_refuses_is_one_line(arguments: list[str], capsys: Captured) -> None:
    long = "a" * 5000
    assert perform([word.format(long) for word in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("penstock: error: ") and "File name too long" in line


def test_a_path_in_a_result_may_hold_any_bytes() -> None:
    line = json_line({"at": Path("\udcff"), "names": ["a", "\udcfe"], "count": 3})
    assert json.loads(line) == {"at": "\\udcff", "names": ["a", "\\udcfe"], "count": 3}


@pytest.mark.parametrize(
    "arguments",
    [["evidence", "--list"], ["simulate", "dhalion-wordcount", "--policy", "dynamic-allocation"]],
)
def test_a_narrow_terminal_cuts_no_name_and_no_figure(arguments: list[str]) -> None:
    environment = {**os.environ, "COLUMNS": "60"}
    shown = subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    assert max(map(len, shown.splitlines())) <= 60
