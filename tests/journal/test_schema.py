from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from penstock.errors import JournalUnavailable
from penstock.journal.schema import STEPS, migrate, present_version, read_version
from penstock.journal.store import open_journal
from tests.fakes import a_window


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def within(path: Path, work: Callable[[Connection], object]) -> object:
    engine = sa.create_engine(f"sqlite:///{path}")
    try:
        with engine.begin() as connection:
            return work(connection)
    finally:
        engine.dispose()


def test_a_new_journal_has_the_present_version(path: Path):
    open_journal(path)
    assert within(path, lambda connection: read_version(connection, "journal")) == present_version()


def test_an_empty_file_becomes_a_journal(path: Path):
    path.touch()
    open_journal(path).observed(1.0, a_window())
    assert len(open_journal(path).observations()) == 1


def test_a_journal_of_a_newer_penstock_is_refused_and_left_alone(path: Path):
    open_journal(path).observed(1.0, a_window())
    within(path, lambda connection: connection.exec_driver_sql("UPDATE schema_version SET version = 99"))
    with pytest.raises(JournalUnavailable, match="has schema version 99, and this Penstock knows") as refused:
        open_journal(path)
    assert str(path) in str(refused.value)
    assert within(path, lambda connection: read_version(connection, "journal")) == 99


def test_an_older_journal_is_brought_up_step_by_step_and_keeps_its_rows(path: Path):
    open_journal(path).observed(1.0, a_window())
    taken: list[str] = []

    def add_owner(connection: Connection) -> None:
        taken.append("owner")
        connection.exec_driver_sql("ALTER TABLE observations ADD COLUMN owner TEXT DEFAULT 'me'")

    def add_place(connection: Connection) -> None:
        taken.append("place")
        connection.exec_driver_sql("ALTER TABLE observations ADD COLUMN place TEXT")

    within(path, lambda connection: migrate(connection, "journal", [*STEPS, add_owner]))
    within(path, lambda connection: migrate(connection, "journal", [*STEPS, add_owner, add_place]))
    within(path, lambda connection: migrate(connection, "journal", [*STEPS, add_owner, add_place]))
    assert taken == ["owner", "place"]
    rows = sqlite3.connect(path).execute("SELECT at, owner, place FROM observations").fetchall()
    assert rows == [(1.0, "me", None)]
    assert within(path, lambda connection: read_version(connection, "journal")) == present_version() + 2


def test_a_step_that_fails_changes_nothing(path: Path):
    open_journal(path)

    def fail(connection: Connection) -> None:
        raise JournalUnavailable("the disk is full")

    with pytest.raises(JournalUnavailable):
        within(path, lambda connection: migrate(connection, "journal", [*STEPS, fail]))
    assert within(path, lambda connection: read_version(connection, "journal")) == present_version()


def test_a_database_of_something_else_is_refused_and_left_alone(path: Path):
    within(path, lambda connection: connection.exec_driver_sql("CREATE TABLE recipes (name TEXT)"))
    with pytest.raises(JournalUnavailable, match="not a journal of Penstock"):
        open_journal(path)
    tables = within(path, lambda connection: sa.inspect(connection).get_table_names())
    assert tables == ["recipes"]


def test_a_journal_of_the_first_version_learns_to_remember_and_keeps_its_rows(path: Path):
    open_journal(path).observed(1.0, a_window())
    for later in ("memories", "leases"):
        within(path, lambda connection, name=later: connection.exec_driver_sql(f"DROP TABLE {name}"))
    within(path, lambda connection: connection.exec_driver_sql("UPDATE schema_version SET version = 1"))
    journal = open_journal(path)
    journal.remember(2.0, "words", "costs", "q", {"h": 1.0})
    assert journal.recall("words", "costs") == {"q": {"h": 1.0}}
    assert len(journal.observations()) == 1


def test_a_journal_of_the_second_version_learns_who_leads(path: Path):
    open_journal(path).observed(1.0, a_window())
    within(path, lambda connection: connection.exec_driver_sql("DROP TABLE leases"))
    within(path, lambda connection: connection.exec_driver_sql("UPDATE schema_version SET version = 2"))
    journal = open_journal(path)
    assert journal.leases.take("words", "me", None) == journal.leases.seen("words")
    assert len(journal.observations()) == 1
