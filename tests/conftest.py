"""Tests on a cluster run one after the other in one process; all others fill the time that these leave."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings

from penstock.journal.store import Journal, open_journal

# a timing is never asserted in a test: a busy machine is slow, not wrong;
# the same examples every time, so that a failure is of the change at hand: `make fuzz` looks for others
settings.register_profile("penstock", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=1000)
settings.load_profile("penstock")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests on a cluster into one group: two clusters at once slow each other down."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("cluster"))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """An empty journal in a file."""
    with closing(open_journal(tmp_path / "journal.db")) as opened:
        yield opened
