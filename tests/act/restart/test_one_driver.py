"""Two supervisors of one job: whatever they do not share, and wherever one is killed, one driver runs."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.act.restart.job_lock import JobLock
from penstock.act.restart.job_memory import JobMemory, claim_job, recall_job, remember_job
from penstock.errors import ActionFailed, Unsupported
from penstock.journal.former_runs import identify_process
from penstock.journal.store import Journal, open_journal
from tests.act.restart.test_shell import ROOT, Stage, running
from tests.waiting import wait_for


class KilledAtTheNote:
    """A journal whose writer is killed when it is about to note its driver."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def remember(self, now: float, owner: str, kind: str, key: str, body: dict[str, Any]) -> None:
        if body["driver"].get("pid"):
            os.kill(os.getpid(), signal.SIGKILL)
        self._journal.remember(now, owner, kind, key, body)


KILLED = """
import sys
from pathlib import Path
from tests.act.restart.test_one_driver import KilledAtTheNote
from tests.act.restart.test_shell import Stage
stage = Stage(Path(sys.argv[1]), action=1)
stage.supervisor(KilledAtTheNote(stage.journal), asks={}, batches=100000).run()
"""


@pytest.fixture
def stage(tmp_path: Path):
    made = Stage(tmp_path)
    with closing(made.journal):
        yield made


@contextmanager
def ending(checkpoint: Path) -> Iterator[None]:
    """End the stand-ins of this checkpoint, whoever their parents are."""
    try:
        yield
    finally:
        for process in psutil.process_iter(["cmdline"]):
            if str(checkpoint) in (process.info["cmdline"] or ()):
                process.kill()


def drivers(checkpoint: Path) -> list[int]:
    return [
        one.pid for one in psutil.process_iter(["cmdline"]) if str(checkpoint) in (one.info["cmdline"] or ())
    ]


def test_a_supervisor_killed_between_start_and_note(stage: Stage, tmp_path: Path):
    with ending(stage.checkpoint):
        words = [sys.executable, "-c", KILLED, str(tmp_path)]
        assert subprocess.run(words, cwd=ROOT, check=False).returncode == -signal.SIGKILL
        wait_for("the driver that is left", lambda: stage.checkpoint.exists() and stage.starts())
        (driver,) = drivers(stage.checkpoint)
        with pytest.raises(ActionFailed, match="already runs"):
            stage.supervisor(asks={}).run()
        assert stage.starts() == ["1g"]
        os.kill(driver, signal.SIGKILL)
        wait_for("its end", lambda: not drivers(stage.checkpoint))
    assert stage.supervisor(asks={}, batches=2).run() == 0
    assert stage.starts() == ["1g", "1g"]


def test_two_with_journals_of_their_own(stage: Stage, tmp_path: Path):
    process = running(stage, tmp_path, starts=2)
    with (
        closing(open_journal(tmp_path / "other.db")) as other,
        pytest.raises(ActionFailed, match="already runs"),
    ):
        stage.supervisor(other, asks={}).run()
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)
    assert stage.starts() == ["1g", "2g"]


def test_two_that_share_the_journal_alone(stage: Stage):
    """One of them may be between two drivers: its own process counts."""
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    remember_job(stage.journal, 1.0, "job", JobMemory(supervisor=identify_process(other.pid)))
    with pytest.raises(ActionFailed, match=f"already runs as process {other.pid}"):
        stage.supervisor(asks={}).run()
    assert not stage.checkpoint.exists()
    other.communicate(b"\n")
    assert stage.supervisor(asks={}, batches=2).run() == 0


def test_who_is_about_to_start_is_written_down_first(stage: Stage):
    mine = JobMemory(supervisor=identify_process())
    claim_job(stage.journal, 1.0, "job", mine)
    assert recall_job(stage.journal, "job").supervisor == mine.supervisor
    claim_job(stage.journal, 2.0, "job", mine)
    with pytest.raises(ActionFailed, match=f"already runs as process {os.getpid()}"):
        claim_job(stage.journal, 3.0, "job", JobMemory(supervisor=identify_process(1)))


def test_a_lock_is_let_go_with_its_last_holder(tmp_path: Path):
    first, second = JobLock(tmp_path / "run", "job"), JobLock(tmp_path / "run", "job")
    first.take()
    (file,) = first.passed_on()
    heir = os.dup(file)
    first.close()
    with pytest.raises(ActionFailed, match=f"already runs as process {os.getpid()}"):
        second.take()
    JobLock(tmp_path / "run", "another job").take()
    os.close(heir)
    second.take()
    second.close()


def test_a_lock_that_leads_elsewhere_is_not_followed(tmp_path: Path):
    lock, target = JobLock(tmp_path / "run", "job"), tmp_path / "target"
    lock.take()
    lock.close()
    (file,) = (tmp_path / "run").iterdir()
    target.write_text("precious")
    file.unlink()
    file.symlink_to(target)
    with pytest.raises(Unsupported, match="cannot be opened"):
        lock.take()
    assert target.read_text() == "precious"


def test_where_nothing_can_be_locked_the_job_runs_and_that_is_said(stage: Stage):
    (stage.root / "run").mkdir(mode=0o777)
    (stage.root / "run").chmod(0o777)
    assert stage.supervisor(asks={}, batches=2).run() == 0
    assert any("started twice may not be noticed" in said for said in stage.said)


@pytest.mark.parametrize("note", [b"", b"7", b"{}", b'{"driver": "x"}', b"\xff"])
def test_a_holder_that_is_not_readable_is_not_named(tmp_path: Path, note: bytes):
    first, second = JobLock(tmp_path / "run", "job"), JobLock(tmp_path / "run", "job")
    first.take()
    (file,) = (tmp_path / "run").iterdir()
    file.write_bytes(note)
    with pytest.raises(ActionFailed, match="already runs, and"):
        second.take()
    with file.open("rb") as opened, pytest.raises(BlockingIOError):
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    first.close()


@pytest.mark.parametrize("number", ["987654", "-1", "x", ""])
def test_a_lock_that_was_not_inherited_is_no_trouble(number: str):
    check = "from penstock.act.restart.job_lock import hold_inherited_lock as hold; hold(); hold()"
    environment = {**os.environ, "SUPERVISED_LOCK": number}
    subprocess.run([sys.executable, "-c", check], cwd=ROOT, env=environment, check=True)
