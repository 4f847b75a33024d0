"""Three applications on their sockets, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.view.dashboard.served import FakeApplication, served


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # short: the path of a socket has little room
    return tmp_path_factory.mktemp("d") / "run"


@pytest.fixture(scope="module")
def words(sockets: Path) -> Iterator[FakeApplication]:
    application = FakeApplication(sockets, "app-1", name="word <b>count</b> & more")
    yield application
    application.close()


@pytest.fixture(scope="module")
def client(sockets: Path, words: FakeApplication) -> Iterator[httpx.Client]:
    with served(sockets) as made:
        yield made
