"""What drivers that died left open is closed by the next run of the same name."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.decide.verdict import Accepted
from penstock.journal.former_runs import (
    KIND,
    FormerRuns,
    identify_process,
    process_is_over,
    settle_former_runs,
)
from penstock.journal.pulses import JournalPulse
from penstock.journal.store import Journal, journal_at
from tests.fakes import a_scale

NAME = "words"


def left_open(journal: Journal, application: str) -> int:
    action = a_scale(4)
    decision = journal.decided(20.0, application, action, Accepted(action, ()), policy="ds2")
    return journal.intend(20.0, application, decision, action, {EXECUTORS: 2})


def dead_process() -> dict[str, Any]:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    return {**identify_process(), "pid": child.pid}


def test_an_action_of_a_dead_driver_is_closed_once(journal: Journal) -> None:
    journal.remember(10.0, NAME, KIND, "app-1", dead_process())
    action_id = left_open(journal, "app-1")

    settle_former_runs(journal, NAME, "app-2", 50.0)
    settle_former_runs(journal, NAME, "app-3", 90.0)

    action = journal.action(action_id)
    assert (action.status, action.ended_at, action.seconds) == (Status.UNKNOWN, 50.0, 30.0)
    assert "app-2, took up the state from the checkpoint" in action.detail
    assert not journal.unfinished("app-1")


def test_a_driver_that_lives_keeps_its_actions(journal: Journal) -> None:
    settle_former_runs(journal, NAME, "app-1", 10.0)
    left_open(journal, "app-1")
    settle_former_runs(journal, NAME, "app-2", 50.0)
    assert len(journal.unfinished("app-1")) == 1


def test_an_application_leaves_its_own_to_its_loop(journal: Journal) -> None:
    journal.remember(10.0, NAME, KIND, "app-1", dead_process())
    left_open(journal, "app-1")
    settle_former_runs(journal, NAME, "app-1", 50.0)
    assert len(journal.unfinished("app-1")) == 1


def elsewhere() -> dict[str, Any]:
    return {**identify_process(), "host": "elsewhere"}


def test_a_driver_on_another_machine_is_dead_once_it_fell_silent(journal: Journal) -> None:
    """A container has a name of its own each time, so that nobody ever saw its process end."""
    journal.remember(10.0, NAME, KIND, "app-1", elsewhere())
    JournalPulse(journal, NAME, "app-1", 10.0).beat(1000.0)
    left_open(journal, "app-1")
    assert settle_former_runs(journal, NAME, "app-2", 1100.0), "it may live"
    assert len(journal.unfinished("app-1")) == 1
    assert not settle_former_runs(journal, NAME, "app-2", 1190.0)
    assert not journal.unfinished("app-1")


def test_a_driver_that_is_frozen_here_is_not_dead(journal: Journal) -> None:
    journal.remember(10.0, NAME, KIND, "app-1", identify_process())
    JournalPulse(journal, NAME, "app-1", 10.0).beat(1000.0)
    left_open(journal, "app-1")
    assert not settle_former_runs(journal, NAME, "app-2", 9000.0), "its end would be seen"
    assert len(journal.unfinished("app-1")) == 1


def test_of_a_machine_that_never_said_anything_nothing_is_known(journal: Journal) -> None:
    journal.remember(10.0, NAME, KIND, "app-1", elsewhere())
    left_open(journal, "app-1")
    assert not settle_former_runs(journal, NAME, "app-2", 9000.0)
    assert len(journal.unfinished("app-1")) == 1


def test_it_is_asked_again_until_all_is_known(journal: Journal) -> None:
    journal.remember(10.0, NAME, KIND, "app-1", elsewhere())
    JournalPulse(journal, NAME, "app-1", 10.0).beat(1000.0)
    left_open(journal, "app-1")
    runs = FormerRuns(journal, NAME, "app-2")
    for now in (1010.0, 1011.0, 1100.0):
        runs.look(now)
    assert len(journal.unfinished("app-1")) == 1
    runs.look(1200.0)
    assert not journal.unfinished("app-1")


def test_another_name_is_none_of_its_business(journal: Journal) -> None:
    journal.remember(10.0, "other", KIND, "app-1", dead_process())
    left_open(journal, "app-1")
    settle_former_runs(journal, NAME, "app-2", 50.0)
    assert len(journal.unfinished("app-1")) == 1


def test_which_processes_are_over() -> None:
    here = identify_process()
    assert not process_is_over(here)
    assert process_is_over(dead_process())
    assert process_is_over({**here, "started": "1"}), "the number was given to another process"
    assert not process_is_over({**here, "host": "elsewhere", "pid": dead_process()["pid"]})
    assert not process_is_over({})
    assert not process_is_over({**here, "pid": "7"})


def test_a_journal_that_cannot_be_read_costs_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no directory")
    with caplog.at_level(logging.WARNING):
        settle_former_runs(journal_at(tmp_path / "file" / "journal.db"), NAME, "app-2", 50.0)
    assert "stay open" in caplog.text
