"""What can go wrong under a journal in a file."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event

from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.decide.policy import Hold
from penstock.decide.verdict import Accepted, NothingToDo
from penstock.errors import BadInput, JournalUnavailable, PenstockError
from penstock.journal.databases import SqliteFile
from penstock.journal.store import Journal, journal_at, open_journal
from penstock.runtime.loop import Loop
from penstock.runtime.ports import Ports
from tests.fakes import APPLICATION, AgreeingManager, FakeActuator, FakeSource, FixedPolicy, a_scale, a_window

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


def limited(path: Path, pragma: str) -> Journal:
    """A journal whose connections all carry a limit that SQLite itself enforces."""
    file = SqliteFile(path)
    event.listen(file.engine, "connect", lambda connection, _: connection.execute(f"PRAGMA {pragma}"))
    return Journal(file)


def run_child(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)


def test_the_directory_is_made_and_only_the_user_may_enter(path: Path):
    open_journal(path)
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("form", [str, Path, "sqlite:///{}".format])
def test_it_is_opened_by_path_or_url(path: Path, form: type):
    open_journal(form(path)).observed(1.0, a_window())
    assert path.is_file()


def test_another_kind_of_database_is_refused_without_showing_its_password():
    with pytest.raises(BadInput, match="'mysql'") as refused:
        open_journal("mysql://user:secret@host/journal")
    assert "secret" not in str(refused.value)


def test_a_reader_does_not_create_a_journal(path: Path):
    with pytest.raises(JournalUnavailable, match="there is no journal at") as refused:
        open_journal(path, create=False)
    assert str(path) in str(refused.value) and not path.parent.exists()


def test_a_reader_makes_no_journal_of_an_empty_file(tmp_path: Path):
    empty = tmp_path / "application.log"
    empty.touch()
    with pytest.raises(JournalUnavailable, match="there is no journal at"):
        open_journal(empty, create=False)
    assert empty.stat().st_size == 0
    open_journal(empty).observed(1.0, a_window())
    open_journal(empty, create=False).close()


def test_a_directory_in_place_of_the_file_is_named(tmp_path: Path):
    with pytest.raises(JournalUnavailable, match="is a directory") as refused:
        open_journal(tmp_path)
    assert str(tmp_path) in str(refused.value)


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path):
    (tmp_path / "state").write_text("not a directory")
    with pytest.raises(JournalUnavailable, match=r"state/journal\.db cannot be"):
        open_journal(tmp_path / "state" / "journal.db")


def test_a_place_where_nothing_can_be_written_is_named():
    with pytest.raises(JournalUnavailable, match=r"/proc/penstock/journal\.db cannot be"):
        open_journal("/proc/penstock/journal.db")


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path):
    path = tmp_path / "journal.db"
    path.write_text("a letter to a friend, long enough to be taken for a header" * 20)
    before = path.read_bytes()
    with pytest.raises(JournalUnavailable, match="the file is not a SQLite database"):
        open_journal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("cell", ["{", "", "nonsense"])
def test_a_cell_that_is_no_json_is_reported(path: Path, cell: str):
    with closing(open_journal(path)) as journal:
        journal.observed(1.0, a_window())
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE observations SET warnings = ?", (cell,))
        with pytest.raises(JournalUnavailable, match="a row is damaged"):
            journal.observations()


def test_a_file_damaged_in_the_middle_is_reported(path: Path):
    journal = open_journal(path)
    for now in range(40):
        journal.observed(float(now), a_window(float(now)))
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(JournalUnavailable, match=r"journal\.db cannot be read"):
        open_journal(path).observations(APPLICATION)


def test_a_full_disk_is_said_in_plain_words_and_what_was_written_stays(path: Path):
    journal = open_journal(path)
    journal.observed(1.0, a_window())
    pages = sqlite3.connect(path).execute("PRAGMA page_count").fetchone()[0]
    full = limited(path, f"max_page_count={pages + 1}")
    with pytest.raises(JournalUnavailable, match="cannot be written: the disk is full"):
        for now in range(500):
            full.observed(float(now), a_window(float(now)))
    assert journal.observations(APPLICATION)[0].at == 1.0
    journal.observed(999.0, a_window())
    assert full.observations(APPLICATION)[-1].at == 999.0, "reading still works"


def test_the_loop_does_not_act_on_a_full_disk_and_resumes_when_there_is_room(path: Path):
    open_journal(path)
    file, room = SqliteFile(path), {"pages": 1}  # SQLite reads a limit below the present size as that size
    limit = "PRAGMA max_page_count={}"
    event.listen(file.engine, "connect", lambda raw, _: raw.execute(limit.format(room["pages"])))
    actuator, policy = FakeActuator(), FixedPolicy(Hold("fine"))
    loop = Loop(APPLICATION, Ports(FakeSource(), policy, AgreeingManager(), Journal(file), actuator))
    now = 0.0
    while loop.tick(now).error is None:
        now += 10.0
    policy.answers = [a_scale(4)]
    refused = loop.tick(now + 10.0)
    assert refused.error is not None and "the disk is full" in refused.error
    assert refused.window is not None and actuator.begun == []
    file.close()
    room["pages"] = 10**6
    assert loop.tick(now + 20.0).action == a_scale(4)


def test_a_disk_that_refuses_to_grow_the_file_is_reported():
    code = """
import resource, sys, tempfile, pathlib
from penstock.errors import JournalUnavailable
from penstock.journal.store import open_journal
from tests.fakes import a_window
directory = tempfile.TemporaryDirectory()
journal = open_journal(pathlib.Path(directory.name) / "journal.db")
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
try:
    for now in range(2000):
        journal.observed(float(now), a_window(float(now)))
except JournalUnavailable as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    kept = len(journal.observations())
    journal.observed(5000.0, a_window(5000.0))
    print(error, "| kept", kept == now, "| works again", len(journal.observations()) == kept + 1)
"""
    child = run_child(code)
    assert "cannot be written: the disk" in child.stdout, child.stderr
    assert child.stdout.strip().endswith("| kept True | works again True")


def test_a_read_only_journal_is_said_in_plain_words(path: Path):
    open_journal(path).observed(1.0, a_window())
    read_only = limited(path, "query_only=1")
    with pytest.raises(JournalUnavailable, match="cannot be written: it is read-only"):
        read_only.observed(2.0, a_window())
    assert len(read_only.observations()) == 1


def test_a_writer_that_never_lets_go_is_waited_for_within_bounds(path: Path):
    open_journal(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    impatient = Journal(SqliteFile(path, busy_seconds=0.1))
    with pytest.raises(JournalUnavailable, match="another process has kept it locked"):
        impatient.observed(1.0, a_window())
    assert impatient.observations() == (), "readers are not held up"
    holder.execute("ROLLBACK")
    impatient.observed(1.0, a_window())


def test_a_deleted_journal_is_made_anew_instead_of_writing_into_nowhere(path: Path):
    journal = open_journal(path)
    journal.observed(1.0, a_window())
    for file in path.parent.iterdir():
        file.unlink()
    journal.observed(2.0, a_window())
    assert [record.at for record in open_journal(path, create=False).observations()] == [2.0]


def test_no_foreign_error_leaks(tmp_path: Path):
    (tmp_path / "text.db").write_text("x" * 5000)
    for place in (tmp_path, tmp_path / "text.db", Path("/proc/penstock/journal.db"), tmp_path / ("n" * 300)):
        journal = journal_at(place)
        for use in (
            lambda j: j.observed(1.0, a_window()),
            lambda j: j.decided(1.0, APPLICATION, Hold("fine"), NothingToDo("fine")),
            lambda j: j.actions(),
            lambda j: j.check(),
        ):
            with pytest.raises(PenstockError):
                use(journal)


CRASH = """
import os, signal, sys
from penstock.journal.store import open_journal
from penstock.runtime.loop import Loop
from penstock.runtime.ports import Ports
from tests.fakes import APPLICATION, AgreeingManager, FakeActuator, FakeSource, FixedPolicy, a_scale

class DyingActuator(FakeActuator):
    def begin(self, now, action):
        print("begun", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

journal = open_journal(sys.argv[1])
Loop(
    APPLICATION, Ports(FakeSource(), FixedPolicy(a_scale(4)), AgreeingManager(), journal, DyingActuator())
).tick(100.0)
"""


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_controller_killed_between_intent_and_outcome_does_not_act_twice(path: Path, took_effect: bool):
    child = run_child(CRASH, str(path))
    assert child.returncode == -signal.SIGKILL and child.stdout == "begun\n", child.stderr
    journal = open_journal(path)
    (intent,) = journal.unfinished(APPLICATION)
    assert intent.planned == {EXECUTORS: 4} and intent.status is None
    actuator = FakeActuator(size=4 if took_effect else 2)
    source = FakeSource(executors=lambda: actuator.size)
    ports = Ports(source, FixedPolicy(a_scale(4)), AgreeingManager(), journal, actuator)
    loop = Loop(APPLICATION, ports)
    loop.tick(200.0)
    closed = journal.action(intent.action_id)
    assert (closed.status, closed.observed) == (Status.UNKNOWN, {EXECUTORS: actuator.size})
    assert actuator.begun == [], "a restart closes the old action and begins none by itself"
    loop.tick(210.0)
    assert len(actuator.begun) == (0 if took_effect else 1), "what is still needed is decided anew"


WRITER = """
import sys
from penstock.journal.store import open_journal
from tests.fakes import a_window
path, name = sys.argv[1:]
journal = open_journal(path)
for now in range(40):
    journal.observed(float(now), a_window(float(now), application=name))
"""


def test_processes_that_open_and_write_one_new_journal_together_lose_nothing(path: Path):
    names = ["a", "b", "c"]
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, name], cwd=PROJECT, env=os.environ) for name in names]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    journal = open_journal(path, create=False)
    assert [len(journal.observations(name)) for name in names] == [40, 40, 40]


def test_another_process_reads_while_this_one_writes(path: Path):
    journal = open_journal(path)
    action = a_scale(4)
    decision = journal.decided(1.0, APPLICATION, action, Accepted(action))
    journal.intend(1.0, APPLICATION, decision, action, {EXECUTORS: 2})
    reading = "import sys; from penstock.journal.store import open_journal; "
    reading += "print(len(open_journal(sys.argv[1], create=False).actions()))"
    with journal.database.writing():
        assert run_child(reading, str(path)).stdout == "1\n"


def wal_bytes(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def test_the_write_ahead_log_does_not_grow_for_ever_beside_a_reader_that_is_stuck(tmp_path: Path):
    path = tmp_path / "journal.db"
    journal = Journal(SqliteFile(path, most_wal_bytes=400_000))
    journal.observed(0.0, a_window())
    stuck = sqlite3.connect(path, isolation_level=None)
    stuck.execute("BEGIN")
    stuck.execute("SELECT * FROM observations").fetchone()
    for number in range(1, 200):
        journal.observed(10.0 * number, a_window())
        decision = journal.decided(10.0 * number, "app-1", Hold("right"), NothingToDo("right"))
    first = wal_bytes(path)
    assert first < 600_000
    for number in range(200, 400):
        journal.observed(10.0 * number, a_window())
        assert journal.decided(10.0 * number, "app-1", Hold("right"), NothingToDo("right")) == decision
    assert wal_bytes(path) == first, "what can be done without is left out"
    acted = journal.decided(4000.0, "app-1", a_scale(4), Accepted(a_scale(4)))
    assert journal.intend(4000.0, "app-1", acted, a_scale(4), {"executors": 2}) == 1, (
        "what is done is written"
    )
    stuck.close()
    journal.observed(5000.0, a_window())
    assert wal_bytes(path) < 400_000
    assert journal.observations("app-1")[-1].at == 5000.0
    journal.close()
