"""What the PostgreSQL journal does beside the contract: a server that is away, passwords, versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.decide.sage.settings import SageSettings
from penstock.errors import BadInput, JournalUnavailable
from penstock.fleet.action_log import ActionLog
from penstock.fleet.places import FleetDirectory
from penstock.fleet.round import play_round, tabulate_decisions
from penstock.fleet.state import empty_state
from penstock.journal.databases import PostgresDatabase
from penstock.journal.ports import hide_password
from penstock.journal.store import Journal, journal_at, open_journal
from penstock_lab.ground.postgres_server import PostgresServer, postgres_server
from tests.fakes import APPLICATION, a_window
from tests.fleet.agents import GIB, a_record, a_table


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


def test_a_server_that_was_away_is_used_again_and_nothing_is_lost(server: PostgresServer):
    journal = open_journal(server.new_database())
    journal.observed(1.0, a_window(1.0))
    server.stop()
    with pytest.raises(JournalUnavailable, match="cannot be written") as refused:
        journal.observed(2.0, a_window(2.0))
    assert "Traceback" not in str(refused.value) and "\n" not in str(refused.value)
    with pytest.raises(JournalUnavailable, match="cannot be read"):
        journal.observations(APPLICATION)
    server.start()
    journal.observed(3.0, a_window(3.0))
    assert [record.at for record in journal.observations(APPLICATION)] == [1.0, 3.0]
    journal.close()


def test_a_writer_does_not_wait_for_ever_for_another(server: PostgresServer):
    url = server.new_database()
    with open_journal(url).database.writing(), pytest.raises(JournalUnavailable, match="lock timeout"):
        Journal(PostgresDatabase(url, busy_seconds=0.2)).observed(1.0, a_window(1.0))
    Journal(PostgresDatabase(url, busy_seconds=0.2)).observed(2.0, a_window(2.0))


def test_a_writer_that_is_stuck_in_a_transaction_is_broken_off_and_others_go_on(server: PostgresServer):
    url = server.new_database()
    journal, stuck = open_journal(url), PostgresDatabase(url, stuck_seconds=0.3)
    with pytest.raises(JournalUnavailable, match="cannot be written"), stuck.writing() as connection:
        journal.observed(1.0, a_window(1.0))
        connection.execute(sa.text("SELECT 1"))
    with stuck.writing():
        pass
    journal.observed(2.0, a_window(2.0))
    assert [record.at for record in journal.observations(APPLICATION)] == [1.0, 2.0]


def test_a_machine_that_gives_no_sign_is_given_up_as_soon_as_the_user_says(server: PostgresServer):
    """The system alone goes on trying for a quarter of an hour, and the loop stands still meanwhile."""

    def told(url: str) -> dict[str, str]:
        with PostgresDatabase(url).reading() as connection:
            raw = connection.connection.dbapi_connection
            assert raw is not None
            return dict(raw.info.get_parameters())

    url = server.new_database()
    open_journal(url).observed(1.0, a_window(1.0))
    usual, own = told(url), told(f"{url}?tcp_user_timeout=5000&connect_timeout=3")
    assert (usual["tcp_user_timeout"], usual["keepalives_idle"]) == ("20000", "10")
    assert (own["tcp_user_timeout"], own["connect_timeout"]) == ("5000", "3")


def test_a_reader_does_not_create_tables(server: PostgresServer):
    url = server.new_database()
    with pytest.raises(JournalUnavailable, match="there is no journal at"):
        open_journal(url, create=False)
    open_journal(url).close()
    open_journal(url, create=False).close()


def test_a_database_of_something_else_is_refused(server: PostgresServer):
    url = server.new_database()
    engine = sa.create_engine(url.replace("postgresql", "postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE customers (name TEXT)"))
    engine.dispose()
    with pytest.raises(JournalUnavailable, match="not a journal of Penstock"):
        open_journal(url)


def test_no_message_shows_the_password():
    with pytest.raises(JournalUnavailable) as refused:
        open_journal("postgresql://user:secret@127.0.0.1:1/journal")
    assert "secret" not in str(refused.value) and "127.0.0.1" in str(refused.value)
    with pytest.raises(BadInput, match="postgresql://USER@HOST"):
        journal_at("postgresql://host:port/journal")


def test_a_fleet_goes_on_without_the_server_and_nothing_is_lost(server: PostgresServer, tmp_path: Path):
    directory, state = FleetDirectory(tmp_path), empty_state()
    log = ActionLog(directory, journal_at(server.new_database()))
    server.stop()
    for number in range(1, 6):
        windows = a_table(a_record("words", 10.0 * number, heap_used_bytes=5.8 * GIB))
        result = play_round(state, windows, SageSettings())
        state = result.state
        directory.write_decisions(number, tabulate_decisions(result, SageSettings()))
        assert not log.catch_up()
    server.start()
    assert log.catch_up() and log.catch_up()
    (record,) = log.journal.decisions("words")
    assert (record.first_at, record.count, record.answer["kind"]) == (40.0, 1, "resize")
    log.journal.close()


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://user:secret@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("postgresql://user:sec@ret/s@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user:what?secret@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user:?a@b/c?d@host/db?x=1", "postgresql://user:***@host/db?x=1"),
        ("postgresql://us@er:secret@host/db", "postgresql://us@er:***@host/db"),
        ("postgresql://host/db?user=u&password=secret&x=1", "postgresql://host/db?user=u&password=***&x=1"),
        ("postgresql://host/db?sslpassword=secret", "postgresql://host/db?sslpassword=***"),
        ("postgresql://user@host:5432/db", "postgresql://user@host:5432/db"),
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("/srv/a:b@c/journal.db", "/srv/a:b@c/journal.db"),
    ],
)
def test_a_password_is_hidden_and_nothing_else(address: str, shown: str) -> None:
    assert hide_password(address) == shown
