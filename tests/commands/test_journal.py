"""`penstock actions`, `explain` and `override`: the journal for people, for programs and for operators."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.decide.manager.restarts import RecommendOnly
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import ExpectedEffect, Resize
from penstock.decide.sage.metrics import Parameter, Rule
from penstock.decide.verdict import Accepted
from penstock.journal.overrides import OperatorsWord, add_override
from penstock.journal.store import open_journal
from penstock.runtime.by_hand import name_user
from tests.commands.command_line import Captured, complaint, last_json

KEY = "spark.executor.memory"
RESIZE = Resize(
    {KEY: "6144m"},
    "P1 (heap scale-up): heap use never fell below 97%",
    ExpectedEffect("heap use stays below its bound"),
    before={KEY: "4096m"},
    seen={"heap_used_bytes": 3.9e9, "gc_seconds": 0.5},
)


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
            add_override(opened, 2.0, name, "ops", pin=["heap"])
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


def test_words_add_up_are_obeyed_and_cleared(capsys: Captured, config: list[str], tmp_path: Path):
    assert perform(["override", "words", "--pin", "heap", *config, "--json"]) == 0
    assert last_json(capsys)["pin"] == ["heap"]
    assert perform(["override", "words", "--veto", "p3", "--force", "P6", *config, "--json"]) == 0
    said = last_json(capsys)
    assert (said["pin"], said["veto"], said["force"]["rule"]) == (["heap"], ["P3"], "P6")
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        word = OperatorsWord(journal, "words")()
    assert word.overrides.pinned == {Parameter.HEAP} and word.overrides.vetoed == {Rule.CPU_UP}
    assert word.overrides.forced is Rule.HEAP_DOWN and word.force_id
    assert perform(["override", "words", "--clear", *config]) == 0
    assert "nothing is overridden" in capsys.readouterr().out
    assert perform(["actions", "--decided", *config, "--json"]) == 0
    log = last_json(capsys)["overrides"]["words"]["log"]
    assert [one["clear"] for one in log] == [False, False, True] and all(one["by"] for one in log)
    assert perform(["actions", "--decided", *config]) == 0
    assert "pin heap" in capsys.readouterr().out


def test_a_force_that_was_obeyed_is_told_as_such(capsys: Captured, config: list[str], tmp_path: Path):
    assert perform(["override", "words", "--force", "P6", *config]) == 0
    assert "forced once: P6" in capsys.readouterr().out
    assert perform(["override", "words", *config, "--json"]) == 0
    said = last_json(capsys)
    assert said["obeyed"] is False
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        journal.remember(2.0, "words", "sage", "known", {"obeyed": said["force"]["id"]})
    assert perform(["override", "words", *config]) == 0
    assert "forced once, and obeyed: P6" in capsys.readouterr().out


def test_a_pin_can_carry_a_value_and_the_last_word_counts(
    capsys: Captured, config: list[str], tmp_path: Path
):
    assert perform(["override", "words", "--pin", "heap=2g", "--pin", "cpu", *config, "--json"]) == 0
    assert last_json(capsys)["pin"] == ["cpu", "heap=2048m"]
    assert perform(["override", "words", "--pin", "heap=1.5g", *config, "--json"]) == 0
    assert last_json(capsys)["pin"] == ["cpu", "heap=1536m"]
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        word = OperatorsWord(journal, "words")()
    assert word.overrides.pinned == {Parameter.HEAP, Parameter.CPU}
    assert word.values == {Parameter.HEAP: 1536 * 1024.0**2}
    assert perform(["override", "words", "--pin", "heap", *config, "--json"]) == 0
    assert last_json(capsys)["pin"] == ["cpu", "heap"], "stays as it is from here on"


def test_the_id_of_a_run_stands_for_the_name_that_outlives_it(
    capsys: Captured, config: list[str], tmp_path: Path
):
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        journal.remember(1.0, "words", "run", "app-1", {})
    assert perform(["override", "app-1", "--pin", "heap", *config, "--json"]) == 0
    assert last_json(capsys)["application"] == "words"
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        assert OperatorsWord(journal, "words")().overrides.pinned == {Parameter.HEAP}
    assert perform(["override", " ", "--pin", "heap", *config]) == 2
    assert "name of an application" in complaint(capsys)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--pin", "hip"], "--pin: unknown parameter 'hip'"),
        (["--force", "P9"], "--force"),
        (["--pin", "heap=lots"], "--pin: heap: "),
        (["--pin", "heap=100m"], "450m at least"),
        (["--pin", "memory-fraction=1.5"], "0.05 to 0.95"),
        (["--pin", "cpu=0"], "number of cores"),
        (["--pin", "parallelism=3"], "max_executors"),
    ],
)
def test_a_word_that_means_nothing(capsys: Captured, config: list[str], words, named):
    assert perform(["override", "words", *words, *config]) == 2
    assert named in complaint(capsys)


def test_the_journal_away_leaves_what_is_known(tmp_path: Path):
    journal = open_journal(tmp_path / "journal.db")
    word = OperatorsWord(journal, "words")
    journal.remember(
        1.0, "words", "overrides", "said", {"pin": ["cpu"], "veto": [], "force": None, "by": "ops"}
    )
    assert word().overrides.pinned == {Parameter.CPU}
    journal.remember(2.0, "words", "overrides", "said", {"pin": ["nonsense"], "veto": [], "force": None})
    assert word().overrides.pinned == {Parameter.CPU}
    journal.close()


def test_a_restart_is_told_with_its_values_and_metrics(capsys: Captured, config: list[str], tmp_path: Path):
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        decision = journal.decided(1.0, "app-1", RESIZE, Accepted(RESIZE), "sage")
        action = journal.intend(1.0, "app-1", decision, RESIZE, RESIZE.before)
        journal.ended(40.0, action, Outcome(Status.DONE, {}, {}, {}, 39.0, "paused for 31.0 s"))
        journal.effect(40.0, action, {"pause_seconds": 31.0})
        journal.decided(50.0, "app-2", RESIZE, RecommendOnly().judge(50.0, RESIZE), "sage")
    assert perform(["actions", *config]) == 0
    assert "6144m" in "".join(capsys.readouterr().out.split())
    assert perform(["explain", "1", *config]) == 0
    shown = capsys.readouterr().out
    for part in (
        f"{KEY} 4096m → 6144m",
        "P1 (heap scale-up)",
        "heap used bytes",
        "paused for 31.0 s",
        "pause seconds 31",
    ):
        assert part in shown, part
    assert perform(["actions", "--decided", "--app", "app-2", *config, "--json"]) == 0
    told = last_json(capsys)
    assert told["actions"] == [] and told["decisions"][0]["verdict"]["guardrail"] == "recommend-only"
    assert told["decisions"][0]["answer"]["before"] == {KEY: "4096m"}


@pytest.mark.parametrize("problem", [KeyError("getpwuid(): uid not found"), OSError("No username set")])
def test_a_user_without_a_name_has_a_word_too(problem: Exception):
    """Containers run as numbers that no file of users knows."""

    def ask() -> str:
        raise problem

    assert name_user(ask).startswith("user ") and name_user()


def test_looking_into_a_journal_that_is_not_there_makes_none(capsys: Captured, tmp_path: Path):
    absent = tmp_path / "somewhere" / "else.db"
    assert perform(["override", "words", "--journal", str(absent)]) == 2
    assert complaint(capsys) == f"--journal: {absent}: no such file"
    assert not absent.parent.exists()
    assert perform(["override", "words", "--pin", "heap", "--journal", str(absent)]) == 0
    assert perform(["override", "words", "--journal", str(absent)]) == 0
