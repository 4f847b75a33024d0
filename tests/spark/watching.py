"""Waiting for a real application to get somewhere, with patience for a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from penstock.dataflow.window import SlotQuery, SlotWindow
from penstock.observe.spark_source import SparkSource

Value = TypeVar("Value")
PATIENCE_SECONDS = 180


def wait_for(
    what: str, attempt: Callable[[], Value | None], every: float = 0.3, patience: float = PATIENCE_SECONDS
) -> Value:
    """Try until the attempt gives something that is true; what it gives is returned."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        value = attempt()
        if value:
            return value
        time.sleep(every)
    raise AssertionError(f"waited {patience:g} s in vain for {what}")


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
