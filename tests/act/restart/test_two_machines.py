"""Supervisors on two machines that share a journal: the second notices one that lives, or takes over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.act.restart.job_lease import JobLease, describe_holder
from penstock.errors import ActionFailed
from penstock.journal.leading import Leadership
from penstock.journal.store import Journal, open_journal
from tests.act.restart.test_journal_away import AwayAtFirst
from tests.act.restart.test_shell import Stage

ELSEWHERE = "elsewhere:7:100"
NAME = "job job"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(open_journal(tmp_path / "journal.db")) as opened:
        yield opened


@contextmanager
def leading_elsewhere(journal: Journal, beats: bool) -> Iterator[None]:
    """A supervisor of another machine that holds the lease, and lives or does not."""
    leadership, ended = Leadership(journal.leases, NAME, ELSEWHERE, 60.0), threading.Event()
    assert leadership.step(0.0) is not None

    def beat() -> None:
        while not ended.wait(0.05):
            leadership.step(0.0)

    thread = threading.Thread(target=beat, daemon=True)
    if beats:
        thread.start()
    yield
    ended.set()
    if beats:
        thread.join()


def test_a_job_that_lives_on_another_machine_is_not_started_twice(tmp_path: Path):
    stage = Stage(tmp_path)
    with closing(stage.journal), leading_elsewhere(stage.journal, beats=True):
        with pytest.raises(ActionFailed, match="already runs on elsewhere as process 7"):
            stage.supervisor(lease=JobLease(stage.journal.leases, "job", patience=30.0), asks={}).run()
        assert not stage.checkpoint.exists()


def test_one_that_gives_no_sign_for_as_long_as_the_lease_is_taken_over(journal: Journal):
    with leading_elsewhere(journal, beats=False):
        said: list[str] = []
        with JobLease(journal.leases, "job", patience=0.3).hold(said.append):
            assert journal.leases.seen(NAME).holder != ELSEWHERE
        assert "elsewhere" in said[0]
    assert journal.leases.seen(NAME).free, "it was given back"


def test_a_dead_one_of_this_machine_is_not_waited_for(journal: Journal):
    dead = describe_holder().rpartition(":")[0] + ":1"
    assert Leadership(journal.leases, NAME, dead, 60.0).step(0.0) is not None
    with JobLease(journal.leases, "job", patience=600.0).hold(print):
        assert journal.leases.seen(NAME).holder == describe_holder()


def test_without_a_journal_the_job_runs(journal: Journal):
    away = AwayAtFirst(journal.leases, 10**9)
    said: list[str] = []
    with JobLease(away, "job", patience=0.2).hold(said.append):
        assert "on another machine may not be noticed" in said[0]


def test_the_next_run_of_the_job_does_not_wait(tmp_path: Path):
    stage = Stage(tmp_path)
    with closing(stage.journal):
        for _ in range(2):
            lease = JobLease(stage.journal.leases, "job", patience=600.0)
            assert stage.supervisor(lease=lease, asks={}, batches=2).run() == 0
