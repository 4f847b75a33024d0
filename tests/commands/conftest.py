"""Settings and journals inside the test's own directory."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from penstock.dataflow.window import EXECUTORS
from penstock.decide.verdict import Accepted
from penstock.journal.store import open_journal
from tests.fakes import a_scale, a_window, an_outcome


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    """The option that keeps a command inside the test's own directory."""
    file = tmp_path / "settings.yaml"
    file.write_text(f"journal: {tmp_path / 'journal.db'}\nruntime_directory: {tmp_path / 'run'}\n")
    return ["--config", str(file)]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with closing(open_journal(path)) as made:
        made.observed(10.0, a_window())
        scale = a_scale(5, "counts needs 10 slots")
        decision = made.decided(10.0, "app-1", scale, Accepted(scale), "ds2")
        action = made.intend(10.0, "app-1", decision, scale, {EXECUTORS: 2})
        made.ended(16.0, action, an_outcome(5, detail="5 registered"))
        made.intend(20.0, "app-2", decision, a_scale(3), {EXECUTORS: 5})
    return path
