"""`penstock actions` and `explain`: the journal for people and for programs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.journal.overrides import override
from penstock.journal.store import open_journal
from tests.commands.command_line import Captured, complaint, last_json


def test_actions(capsys: Captured, config: list[str], journal: Path) -> None:
    assert perform(["actions", *config, "--json"]) == 0
    first, second = last_json(capsys)["actions"]
    assert (first["status"], first["planned"], first["before"]) == (
        "done",
        {"executors": 5},
        {"executors": 2},
    )
    assert (second["application"], second["status"]) == ("app-2", None)


def test_actions_of_one_application_for_people(capsys: Captured, journal: Path, tmp_path: Path) -> None:
    assert perform(["actions", "--app", "app-1", "--journal", str(journal)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "app-1" in shown
    assert "app-2" not in shown


@pytest.mark.parametrize(
    ("app", "actions", "overridden"),
    [("app-1", ["app-1"], ["words"]), ("words", ["app-1", "app-2"], ["words"]), ("app-3", [], [])],
)
def test_an_application_is_found_by_its_id_and_by_its_name(
    capsys: Captured, journal: Path, app: str, actions: list[str], overridden: list[str]
) -> None:
    """What operators said is kept under the name; what was done, under the id of each run."""
    with closing(open_journal(journal)) as opened:
        for run in ("app-1", "app-2"):
            opened.remember(1.0, "words", "run", run, {})
        for name in ("words", "clicks"):
            override(opened, 2.0, name, "ops", pin=["heap"])
    assert perform(["actions", "--decided", "--app", app, "--journal", str(journal), "--json"]) == 0
    told = last_json(capsys)
    assert [one["application"] for one in told["actions"]] == actions
    assert list(told["overrides"]) == overridden


def test_actions_where_nothing_was_recorded(capsys: Captured, config: list[str]) -> None:
    assert perform(["actions", *config, "--json"]) == 0
    assert last_json(capsys) == {"actions": []}
    assert perform(["actions", *config]) == 0
    assert "no actions" in capsys.readouterr().out


def test_explain(capsys: Captured, config: list[str], journal: Path) -> None:
    assert perform(["explain", "1", *config]) == 0
    assert "counts needs 10 slots" in capsys.readouterr().out
    assert perform(["explain", "1", *config, "--json"]) == 0
    told = last_json(capsys)
    assert told["action"]["action_id"] == 1
    assert "counts needs 10 slots" in told["explanation"]


@pytest.mark.parametrize("recorded_before", [True, False])
def test_explaining_an_action_that_is_not_there(
    capsys: Captured, config: list[str], journal: Path, recorded_before: bool
) -> None:
    if not recorded_before:
        journal.unlink()
    assert perform(["explain", "99", *config]) == 2
    assert "no action 99" in complaint(capsys)


@pytest.mark.parametrize("arguments", [["explain", "9" * 30], ["actions", "--limit", "9" * 30]])
def test_a_number_that_no_database_takes_is_bad_usage(
    capsys: Captured, journal: Path, arguments: list[str]
) -> None:
    assert perform([*arguments, "--journal", str(journal)]) == 2
    assert "less than or equal to" in complaint(capsys)


def test_a_journal_that_is_no_journal_is_a_failure_not_a_crash(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "odd.db").write_text("this is not a database, and long enough to be one" * 50)
    assert perform(["actions", "--journal", str(tmp_path / "odd.db")]) == 1
    assert "odd.db" in complaint(capsys)
