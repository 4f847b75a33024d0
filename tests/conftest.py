"""Fast tests first, so that what needs no cluster fails in seconds."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings

from penstock.journal.store import Journal, open_journal

# where an environment keeps Python from writing bytecode, every command that a test starts compiles the
# product, and every worker all of the tests
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# a timing is never asserted in a test: a busy machine is slow, not wrong;
# the same examples every time, so that a failure is of the change at hand: `make fuzz` looks for many others
settings.register_profile("penstock", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("fuzz", deadline=None, max_examples=1000)
settings.load_profile("penstock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """An empty journal in a file."""
    with closing(open_journal(tmp_path / "journal.db")) as opened:
        yield opened
