"""A handle in a notebook: a table that keeps itself up to date while the autopilot is at work.

Notebooks bring IPython, which can write over what it has shown; nothing else is needed for it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

EVERY_SECONDS = 2.0

Update = Callable[[str], None]
Show = Callable[[str], Update]
"""Shows markup, and returns what writes over it."""


class LiveTable:
    """Shows a table, and writes over it from a daemon thread as long as `alive` says so, and at the end."""

    def __init__(
        self, render: Callable[[], str], alive: Callable[[], bool], every: float = EVERY_SECONDS
    ) -> None:
        self._render, self._alive, self._every = render, alive, every
        self._ended = threading.Event()

    def start(self, show: Show) -> threading.Thread:
        """Show the table and begin to keep it; it ends by itself."""
        first = self._render()
        update = show(first)
        thread = threading.Thread(
            target=self._keep, args=(first, update), name="penstock-notebook", daemon=True
        )
        thread.start()
        return thread

    def stop(self) -> None:
        """Leave the table as it is, since another one is shown."""
        self._ended.set()

    def _keep(self, shown: str, update: Update) -> None:
        alive = True
        while alive and not self._ended.wait(self._every):
            alive = self._alive()
            if (fresh := self._render()) != shown:
                shown = fresh
                update(shown)


def find_notebook() -> Show | None:
    """Return what shows markup in this notebook; None where the process is none."""
    loaded = sys.modules.get("IPython")
    shell: Any = loaded.get_ipython() if loaded is not None else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    from importlib import import_module

    display = import_module("IPython.display")

    def show(markup: str) -> Update:
        handle = display.display(display.HTML(markup), display_id=True)
        return lambda fresh: handle.update(display.HTML(fresh))

    return show
