"""The stores of the journal: a SQLite file, and a database on a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.journal.store import Journal, open_journal
from penstock_lab.ground.postgres_server import PostgresServer, postgres_server

Opener = Callable[..., Journal]


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


def sqlite_opener(request: pytest.FixtureRequest) -> Opener:
    path = request.getfixturevalue("tmp_path") / "journal.db"
    return lambda **options: open_journal(path, **options)


def postgres_opener(request: pytest.FixtureRequest) -> Opener:
    url = request.getfixturevalue("server").new_database()
    return lambda **options: open_journal(url, **options)


STORES: dict[str, Callable[[pytest.FixtureRequest], Opener]] = {
    "sqlite": sqlite_opener,
    "postgresql": postgres_opener,
}


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest) -> Iterator[Opener]:
    opened: list[Journal] = []
    opener = STORES[request.param](request)

    def remembered(**options: int) -> Journal:
        opened.append(opener(**options))
        return opened[-1]

    yield remembered
    for journal in opened:
        journal.close()


@pytest.fixture
def journal(open_store: Opener) -> Journal:
    return open_store()
