"""The command contract: output, exit codes, and one clear line for whatever is wrong."""

from __future__ import annotations

import pytest

from penstock import __version__
from penstock.cli import perform
from penstock.decide.registry import POLICIES
from tests.commands.command_line import Captured, complaint, last_json

COMMANDS = [
    *("run", "watch", "status", "pause", "resume", "state", "rebalance", "drain"),
    *("decide", "simulate", "policies", "actions", "explain", "diagnose", "bench", "demo", "config"),
]


def test_the_version(capsys: Captured) -> None:
    assert perform(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_takes_json(capsys: Captured, command: str) -> None:
    assert perform([command, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


def test_without_a_command_the_help_is_shown(capsys: Captured) -> None:
    assert perform([]) == 2
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["watch", "--frob"], "--frob"),
        (["decide"], "--topology"),
        (["explain", "seven"], "action"),
        (["run"], "JOB.PY"),
        (["run", "nowhere.py"], "nowhere.py: no such file"),
        (["run", "--conf", "novalue", __file__], "--conf: 'novalue' is not key=value"),
        (["run", "--conf", "a=b", __file__], "--conf: 'a' is not a Spark key"),
        (["run", "--policy", "ds3", __file__], "unknown policy 'ds3'; did you mean 'ds2'?"),
        (["run", "--config", "none.yaml", __file__], "none.yaml"),
        (["run", "--conf", "spark.penstock.utilization=1", __file__], "utilisation"),
        (["bench"], "name one of "),
        (["bench", "descision"], "did you mean 'decision'?"),
        (["config", "--config", "none.yaml"], "none.yaml: no such file"),
        (["config", "--conf", "spark.penstock.policy=ds3"], "unknown policy 'ds3'; did you mean 'ds2'?"),
        (["actions", "--journal", "none.db"], "--journal: none.db: no such file"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(capsys: Captured, arguments: list[str], said: str) -> None:
    assert perform(arguments) == 2
    assert said in complaint(capsys)


def test_policies(capsys: Captured) -> None:
    assert perform(["policies", "--json"]) == 0
    listed = last_json(capsys)["policies"]
    assert {one["name"] for one in listed} == set(POLICIES)
    for one in listed:
        assert set(one) == {"name", "summary", "needs", "promises", "choose_when", "usable_in", "baseline"}
    baselines = [one["baseline"] for one in listed]
    assert baselines == sorted(baselines)
    assert perform(["policies"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in POLICIES)


def test_benches_are_listed(capsys: Captured) -> None:
    assert perform(["bench", "--list", "--json"]) == 0
    assert {"decision", "overhead", "wordcount"} <= {one["name"] for one in last_json(capsys)["benches"]}


def test_a_bench_prints_its_table_and_ends_with_json(capsys: Captured) -> None:
    assert perform(["bench", "decision", "--quick", "--json"]) == 0
    report = last_json(capsys)
    assert report["bench"] == "decision"
    assert report["targets"]
