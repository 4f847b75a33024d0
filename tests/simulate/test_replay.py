"""Counterfactual decisions over a journal that the real loop has written."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.commands.offline import replay_journal
from penstock.decide.manager.manager import ScalingManager
from penstock.decide.registry import policy_entry
from penstock.journal.former_runs import KIND
from penstock.journal.store import open_journal
from penstock.runtime.loop import Loop, LoopSettings
from penstock.runtime.ports import Ports
from penstock.simulate.ports import VirtualActuator
from penstock.simulate.replay import replay_windows
from penstock.simulate.run import build_application
from tests.fakes import FixedPolicy
from tests.simulate.test_batches import spark


def record(path, experiment):
    """Run the loop over simulated batches with a real journal."""
    application, source = build_application(experiment, 0)
    actuator, settings = VirtualActuator(application), experiment.settings
    manager = ScalingManager(settings.manager, settings.bounds, settings.goals)
    interval = int(settings.manager.policy_interval)
    with closing(open_journal(path)) as journal:
        ports = Ports(source, policy_entry("ds2").make(settings), manager, journal, actuator)
        loop = Loop(experiment.name, ports, LoopSettings(policy_interval=settings.manager.policy_interval))
        while application.now < experiment.seconds:
            due = (application.now // interval + 1) * interval
            application.advance(due if actuator.ends_at is None else min(due, actuator.ends_at))
            assert loop.tick(float(application.now)).error is None


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A journal of half an hour, to be read or copied, and the settings."""
    path = tmp_path_factory.mktemp("recording") / "journal.db"
    experiment = spark("steps:0=200,900=700", duration=1800, noise=0.02)
    record(path, experiment)
    return path, experiment.settings


@pytest.fixture
def recorded(recording, tmp_path):
    """A copy of it, to be read and changed: its journal, and the settings."""
    path, settings = recording
    with closing(open_journal(Path(shutil.copy(path, tmp_path)))) as journal:
        yield journal, settings


def test_the_policy_that_decided_decides_the_same_again(recorded):
    journal, settings = recorded
    found = replay_windows(
        journal.observations(), journal.actions(), policy_entry("ds2").make(settings), settings
    )
    assert found.steps == found.steps_done == len(journal.actions()) > 0
    assert found.first_difference is None and found.unobserved == 0 and found.warning is None
    kinds = {moment.at: moment.kind for moment in found.moments}
    for decision in journal.decisions():
        assert kinds[decision.first_at] == decision.kind


def test_moved_state_is_no_change_of_size(recorded):
    journal, settings = recorded
    (first, *_) = journal.actions()
    moved = replace(first, planned={"bins": 2}, intended_at=first.intended_at + 100)
    made = policy_entry("ds2").make(settings)
    found = replay_windows(journal.observations(), (*journal.actions(), moved), made, settings)
    assert found.steps_done == len(journal.actions()) and found.first_difference is None


def test_another_policy_is_warned_of_where_it_was_not_observed(recorded):
    journal, settings = recorded
    other = policy_entry("dynamic-allocation").make(settings)
    found = replay_windows(journal.observations(), journal.actions(), other, settings)
    first = found.first_difference
    assert first is not None and first.observed and found.unobserved > 0
    assert all(moment.observed for moment in found.moments if moment.at <= first.at)
    # virtual time begins in 1970
    assert (
        f"all after 1970-01-01 00:{first.at // 60:02.0f}" in found.warning and "not observed" in found.warning
    )


def test_a_size_that_it_would_hold_already_is_not_decided_again(recorded):
    journal, settings = recorded
    other = policy_entry("dynamic-allocation").make(settings)
    found = replay_windows(journal.observations(), journal.actions(), other, settings)
    changes = [moment for moment in found.moments if moment.decided is not None]
    assert changes and all(moment.decided != moment.would_hold for moment in changes)
    again = [moment for moment in found.moments if "would hold this size" in moment.reason]
    assert again and {moment.kind for moment in again} == {"nothing-to-do"}


def test_the_command_shows_and_prints_json(capsys, tmp_path, recording):
    path, _ = recording
    config = tmp_path / "penstock.yaml"
    config.write_text("policy_interval: 20s\nbatch_period: 10s\n")
    arguments = ["replay", str(path), "--policy", "dynamic-allocation", "--config", str(config)]
    assert perform([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["policy"] == "dynamic-allocation" and found["windows"] == len(found["decisions"]) == 90
    assert found["first_difference_at"] and found["warning"] and found["steps_done"] > 0
    page = tmp_path / "out" / "replay.html"
    assert perform([*arguments, "--html", str(page)]) == 0
    caught = capsys.readouterr()
    assert "Beware" in caught.out and f"wrote {page}" in caught.err
    told = page.read_text()
    assert "replayed with dynamic-allocation" in told and "really held" in told and "Beware" in told
    assert found["decisions"][-1]["reason"] not in ("", None)
    assert 'src="http' not in told


def test_a_bug_of_a_policy_is_not_taken_for_a_bad_journal(recording):
    path, settings = recording
    with pytest.raises(TypeError, match="a bug of ours"):
        replay_journal(str(path), None, FixedPolicy(TypeError("a bug of ours")), settings)


def test_bad_journals_end_with_exit_code_2_and_one_line(capsys, tmp_path, recording):
    foreign, torn, empty, old = (tmp_path / name for name in ("foreign", "torn.db", "empty.db", "old.db"))
    other = tmp_path / "other.db"
    foreign.write_text("this is no database, whatever its name says")
    for path in (torn, old, other):
        shutil.copy(recording[0], path)
    open_journal(empty).close()
    with sqlite3.connect(old) as connection:
        connection.execute('UPDATE observations SET queries = \'[{"name": "w", "colour": 3}]\'')
    with sqlite3.connect(other) as connection:
        connection.execute("UPDATE observations SET parallelism = '[]'")
    content = torn.read_bytes()
    torn.write_bytes(content[: len(content) // 3])
    said = {
        tmp_path / "none.db": "no such file",
        empty: "no observations",
        foreign: "",
        torn: "",
        old: "colour",
        other: "cannot be replayed",
    }
    for path, words in said.items():
        assert perform(["replay", str(path)]) == 2, path
        (line,) = capsys.readouterr().err.splitlines()
        assert str(path) in line and words in line


def test_an_application_is_named_by_its_id_or_by_its_name(capsys, tmp_path, recorded):
    path, (journal, _) = tmp_path / "journal.db", recorded
    run = journal.observations()[0].application
    journal.remember(0.0, "clicks", KIND, run, {})
    for app in (run, "clicks"):
        assert perform(["replay", str(path), "--app", app, "--json"]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["application"] == run
    assert perform(["replay", str(path), "--app", "views"]) == 2
    assert "no observations of 'views'" in capsys.readouterr().err


def test_observations_of_older_versions_are_told_apart(capsys, tmp_path, recording):
    path = shutil.copy(recording[0], tmp_path)
    with sqlite3.connect(path) as connection:
        queries = "json_set(queries, '$[0].detail', json('{}'))"
        connection.execute(f"UPDATE observations SET queries = {queries} WHERE id <= 10")
    assert perform(["replay", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["unreadable"] == 10
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE observations SET queries = {queries}")
    assert perform(["replay", str(path)]) == 2
    assert "older version" in capsys.readouterr().err


def test_a_journal_that_is_away_is_named_without_its_password(capsys):
    assert perform(["replay", "postgresql://user:secret@127.0.0.1:1/journal", "--json"]) == 2
    told = capsys.readouterr()
    assert "127.0.0.1:1/journal" in json.loads(told.out)["error"]
    assert "secret" not in told.out + told.err
