"""What another user made or may have written to is not believed; what Penstock makes is its user's alone."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.errors import JournalUnavailable, Unsupported
from penstock.journal.databases import SqliteFile
from penstock.journal.private_files import require_owner
from penstock.journal.store import Journal, open_journal
from tests.fakes import a_window

SIDES = ("", "-wal", "-shm")
ROOT_RUNS = os.geteuid() == 0
SOMEBODY_ELSE = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


@pytest.fixture
def user() -> int:
    """Who looks: root gives files away in these tests, everybody else plays one who does not own them."""
    return os.geteuid() if ROOT_RUNS else SOMEBODY_ELSE


@contextmanager
def mask(bits: int) -> Iterator[None]:
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)


def give_away(path: Path) -> None:
    if ROOT_RUNS:
        os.chown(path, SOMEBODY_ELSE, -1, follow_symlinks=False)


def modes(path: Path) -> list[int]:
    return [stat.S_IMODE(Path(f"{path}{side}").stat().st_mode) for side in SIDES]


def refusal(path: Path, user: int | None = None, create: bool = True) -> str:
    with pytest.raises(JournalUnavailable) as refused:
        Journal(SqliteFile(path, create=create, user=user)).check()
    said = str(refused.value)
    assert str(path) in said and "\n" not in said
    return said


@pytest.mark.parametrize("bits", [0o000, 0o022, 0o077])
def test_the_journal_and_what_sqlite_puts_beside_it_are_for_the_user_alone(path: Path, bits: int):
    with mask(bits), closing(open_journal(path)) as journal:
        journal.observed(1.0, a_window())
        assert modes(path) == [0o600] * 3
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_journal_of_ours_that_others_may_read_is_closed_to_them(path: Path):
    with closing(open_journal(path)) as earlier:
        earlier.observed(1.0, a_window())
        for side in SIDES:
            Path(f"{path}{side}").chmod(0o644)
        with closing(open_journal(path)) as journal:
            assert modes(path) == [0o600] * 3
            assert len(journal.observations()) == 1


def test_a_file_that_turns_out_to_be_no_journal_keeps_its_mode(tmp_path: Path):
    letter = tmp_path / "letter"
    letter.write_text("a letter to a friend, long enough to be taken for a header" * 20)
    letter.chmod(0o644)
    refusal(letter)
    assert stat.S_IMODE(letter.stat().st_mode) == 0o644


@pytest.mark.parametrize("mode", [0o660, 0o606, 0o666])
@pytest.mark.parametrize("side", SIDES)
def test_a_journal_that_others_may_have_written_is_refused(path: Path, mode: int, side: str):
    with closing(open_journal(path)) as earlier:
        earlier.observed(1.0, a_window())
        Path(f"{path}{side}").chmod(mode)
        said = refusal(path)
    assert "can be written by other users" in said and "chmod 600" in said


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("side", [*SIDES, "-journal"])
def test_a_journal_of_another_user_is_refused(path: Path, user: int, side: str, create: bool):
    with closing(open_journal(path)) as earlier:
        earlier.observed(1.0, a_window())
        theirs = Path(f"{path}{side}")
        theirs.touch(mode=0o600)
        give_away(theirs)
        said = refusal(path, user, create)
    assert "belongs to another user" in said and "journal" in said


def test_a_directory_that_another_user_made_first_gets_no_journal(path: Path, user: int):
    path.parent.mkdir()
    path.parent.chmod(0o777)
    give_away(path.parent)
    said = refusal(path, user)
    assert f"{path.parent} belongs to another user" in said and "name one" in said
    assert not path.exists()


def test_a_link_in_place_of_the_directory_must_be_ours(tmp_path: Path, user: int):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "state"
    link.symlink_to(tmp_path / "elsewhere")
    give_away(link)
    assert "belongs to another user" in refusal(link / "journal.db", user)


def test_a_link_to_a_foreign_journal_is_refused(tmp_path: Path, user: int):
    theirs, link = tmp_path / "theirs.db", tmp_path / "journal.db"
    open_journal(theirs).close()
    give_away(theirs)
    link.symlink_to(theirs)
    assert "belongs to another user" in refusal(link, user)


def test_a_foreign_link_to_a_journal_of_ours_is_refused(tmp_path: Path, user: int):
    ours, link = tmp_path / "ours.db", tmp_path / "journal.db"
    open_journal(ours).close()
    link.symlink_to(ours)
    give_away(link)
    assert "belongs to another user" in refusal(link, user)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_of_ours_is_followed(tmp_path: Path, there: bool):
    ours, link = tmp_path / "ours.db", tmp_path / "journal.db"
    if there:
        open_journal(ours).close()
    link.symlink_to(ours)
    with closing(open_journal(link)) as journal:
        journal.observed(1.0, a_window())
        assert modes(ours) == [0o600] * 3


def test_a_file_of_ours_in_a_directory_that_all_share_is_used(tmp_path: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with closing(open_journal(shared / "journal.db")) as journal:
        journal.observed(1.0, a_window())
        assert modes(shared / "journal.db") == [0o600] * 3
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777, "which is left as it is"
    give_away(shared)
    with closing(open_journal(shared / "journal.db")) as journal:
        assert len(journal.observations()) == 1


def test_what_is_put_in_its_place_while_it_is_used_is_refused(path: Path, tmp_path: Path):
    """The check is made of every file that is opened, not of the first one."""
    with closing(open_journal(path)) as journal:
        journal.observed(1.0, a_window())
        path.unlink()
        with closing(sqlite3.connect(path)) as theirs:
            theirs.execute("CREATE TABLE memories (x)")
        path.chmod(0o666)
        with pytest.raises(JournalUnavailable, match="can be written by other users"):
            journal.observations()


def test_who_may_own_a_file(tmp_path: Path):
    mine = tmp_path / "mine"
    mine.touch()
    require_owner(mine, os.geteuid())
    require_owner(mine, SOMEBODY_ELSE, os.geteuid())
    with pytest.raises(Unsupported, match=f"belongs to another user .uid {os.geteuid()}"):
        require_owner(mine, SOMEBODY_ELSE)
