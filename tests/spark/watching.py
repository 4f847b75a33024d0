"""Windows of a real application, observed until one of them shows what a test needs."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.dataflow.window import SlotQuery, SlotWindow
from penstock.observe.spark_source import SparkSource
from tests.waiting import wait_for


def query_of(window: object, name: str) -> SlotQuery | None:
    """The query of that name in a window that is ready."""
    if not isinstance(window, SlotWindow):
        return None
    return next((query for query in window.queries if query.name == name), None)


def watch(
    source: SparkSource, name: str, enough: Callable[[SlotQuery], bool], every: float = 1.0
) -> tuple[SlotQuery, SlotWindow]:
    """Observe, window after window, until the named query's window is enough."""

    def attempt() -> tuple[SlotQuery, SlotWindow] | None:
        window = source.observe(time.time())
        query = query_of(window, name)
        if query is None or not enough(query):
            return None
        assert isinstance(window, SlotWindow)
        return window, query

    return wait_for(f"a window of {name}", attempt, every)
