"""The command contract: output, exit codes, and one clear line for whatever is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from penstock import __version__
from penstock.cli import app, perform
from penstock.commands.laboratory import COMMANDS as LABORATORY
from penstock.decide.registry import POLICIES
from tests.commands.command_line import Captured, complaint, last_json


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All commands, those of groups by their full names."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path
    for name in inner or ():
        yield from leaves(inner[name], (*path, name))


COMMANDS = sorted(leaves(typer.main.get_command(app)))


def test_the_version(capsys: Captured) -> None:
    assert perform(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_and_takes_json(capsys: Captured, command: tuple[str, ...]) -> None:
    assert perform([*command, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


def test_without_a_command_the_help_is_shown(capsys: Captured) -> None:
    assert perform([]) == 2
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize("group", [[], ["fleet"], ["pipeline"]])
def test_a_list_of_commands_cuts_no_summary_of_the_product(capsys: Captured, group: list[str]) -> None:
    assert perform([*group, "--help"]) == 0
    listed = [line.split() for line in capsys.readouterr().out.partition("Commands:")[2].splitlines()]
    assert not [
        words for words in listed if words and words[0] not in LABORATORY and words[-1].endswith("...")
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["watch", "--frob"], "--frob"),
        (["decide"], "--topology"),
        (["explain", "seven"], "ACTION"),
        (["run"], "JOB.PY"),
        (["run", "nowhere.py"], "nowhere.py: no such file"),
        (["run", "--conf", "novalue", __file__], "--conf: 'novalue' is not key=value"),
        (["run", "--conf", "a=b", __file__], "--conf: 'a' is not a Spark key"),
        (["run", "--policy", "ds3", __file__], "unknown policy 'ds3'; did you mean 'ds2'?"),
        (["run", "--policy", "drs", __file__], "policy: 'drs' sizes operators with instances of their own"),
        (["run", "--policy", "forecast:drs-observed", __file__], "it can be used in pipeline run, decide"),
        (["run", "--config", "none.yaml", __file__], "none.yaml"),
        (["run", "--conf", "spark.penstock.utilization=1", __file__], "utilisation"),
        (["bench"], "name one of "),
        (["bench", "descision"], "did you mean 'decision'?"),
        (["config", "--config", "none.yaml"], "none.yaml: no such file"),
        (["config", "--conf", "spark.penstock.policy=ds3"], "unknown policy 'ds3'; did you mean 'ds2'?"),
        (["actions", "--journal", "none.db"], "--journal: none.db: no such file"),
        (["override"], "Missing argument 'APP'"),
        (["diagnose"], "Missing argument 'PATH'"),
        (["rebalance", "--strategy", "quick"], "quick"),
        (["simulate", "nope"], "nope: neither a file nor a shipped scenario; known: autrascale-q11"),
        (["fleet", "run", ".", "--windows", "kafka://x"], "--windows: kafka://x: a directory or kafka://"),
        (["fleet", "run", ".", "--decisions", "kafka://x"], "--decisions: kafka://x: "),
        (["fleet", "run", ".", "--journal", "foo://x"], "--journal: a journal in 'foo' is not supported"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(capsys: Captured, arguments: list[str], said: str) -> None:
    assert perform(arguments) == 2
    assert said in complaint(capsys)


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


def test_policies(capsys: Captured) -> None:
    assert perform(["policies", "--json"]) == 0
    listed = last_json(capsys)["policies"]
    assert {one["name"] for one in listed} == set(POLICIES)
    for one in listed:
        assert set(one) == {
            "name",
            "summary",
            "needs",
            "promises",
            "choose_when",
            "usable_in",
            "baseline",
            "origin",
        }
    assert {one["origin"] for one in listed} == {"penstock"}
    baselines = [one["baseline"] for one in listed]
    assert baselines == sorted(baselines)
    usable = {one["name"]: one["usable_in"] for one in listed}
    assert usable["queueing"] == ["run", "pipeline run", "decide", "simulate", "replay"]
    assert usable["threshold"] == ["run", "pipeline run", "simulate", "replay"]
    assert perform(["policies"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in POLICIES) and "run, pipeline run, simulate, replay" in shown


def test_benches_are_listed(capsys: Captured) -> None:
    assert perform(["bench", "--list", "--json"]) == 0
    assert {"decision", "overhead", "wordcount"} <= {one["name"] for one in last_json(capsys)["benches"]}


def test_a_bench_prints_its_table_and_ends_with_json(capsys: Captured) -> None:
    assert perform(["bench", "decision", "--quick", "--json"]) == 0
    report = last_json(capsys)
    assert report["bench"] == "decision"
    assert report["targets"]
