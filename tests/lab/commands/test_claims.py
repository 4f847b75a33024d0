"""`penstock evidence` writes its report, resumes, and reports what failed."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from penstock.cli import perform


def test_the_command_writes_report_and_state_and_resumes(tmp_path, capsys):
    arguments = [
        "evidence",
        "--quick",
        "--only",
        "heron",
        "--only",
        "sizing",
        "--directory",
        str(tmp_path),
    ]
    assert perform([*arguments, "--json"]) == 0
    first = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert [part["status"] for part in first["parts"]] == ["done", "left to the full run"]
    assert {path.name for path in tmp_path.iterdir()} == {"evidence.html", "evidence.json", "state.json"}
    assert perform([*arguments, "--json"]) == 0
    second = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert second["parts"][0] == first["parts"][0]
    assert orjson.loads((tmp_path / "evidence.json").read_bytes()) == second


def test_a_broken_state_file_is_bad_input(tmp_path, capsys):
    (tmp_path / "state.json").write_text("not JSON")
    assert perform(["evidence", "--only", "heron", "--directory", str(tmp_path)]) == 2
    assert "state.json is not a state file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["herons", "nothing-like-it"])
def test_an_unknown_part_is_bad_usage(name, capsys):
    assert perform(["evidence", "--only", name]) == 2
    assert name in capsys.readouterr().err


def test_a_part_that_fails_in_the_command_is_reported_and_the_others_go_on(tmp_path):
    arguments = [
        "--quick",
        "--json",
        "--directory",
        str(tmp_path),
        "--only",
        "heron",
        "--only",
        "bottlenecks",
    ]
    without_java = {**os.environ, "JAVA_HOME": str(tmp_path / "nowhere")}
    program = Path(sys.executable).with_name("penstock")
    ended = subprocess.run(
        [program, "evidence", *arguments], check=False, env=without_java, capture_output=True, timeout=120
    )
    assert ended.returncode == 1
    heron, bottlenecks = orjson.loads(ended.stdout.splitlines()[-1])["parts"]
    assert (heron["status"], bottlenecks["status"]) == ("done", "failed")
    assert "Java" in bottlenecks["reason"] or "JAVA" in bottlenecks["reason"]
    assert b"part 1 of 2, bottlenecks" in ended.stderr or b"part 2 of 2, bottlenecks" in ended.stderr
    assert "failed: " in (tmp_path / "evidence.html").read_text()
    assert [one["name"] for one in orjson.loads((tmp_path / "state.json").read_bytes())["parts"]] == [
        "heron",
        "bottlenecks",
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["decision", "--day", "DAY"], "--day is for a whole run of field"),
        (["field", "--quick", "--day", "DAY"], "--day is for a whole run of field"),
        (["field", "--day", "NONE"], "none.csv cannot be read"),
    ],
)
def test_a_day_that_is_of_no_use_is_refused_before_anything_runs(tmp_path, capsys, arguments, complaint):
    (tmp_path / "day.csv").write_text("1\n2\n")
    files = {"DAY": str(tmp_path / "day.csv"), "NONE": str(tmp_path / "none.csv")}
    assert perform(["bench", *(files.get(word, word) for word in arguments)]) == 2
    assert complaint in capsys.readouterr().err.replace("\n", " ")
