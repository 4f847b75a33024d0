"""Fast tests first, so that what needs no cluster fails in seconds."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)
