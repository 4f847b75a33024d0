"""A fleet that has decided for years: what is old costs neither agents nor the controller anything."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.decide.sage.settings import SageSettings
from penstock.fleet.places import DAY, FleetDirectory, NewDecisions
from penstock.fleet.round import play_round, tabulate_decisions
from penstock.fleet.state import empty_state
from tests.fleet.agents import GIB, a_record, a_table


@pytest.fixture
def decisions() -> Any:
    state, settings = empty_state(), SageSettings()
    for number in range(1, 6):
        windows = a_table(a_record("words", 10.0 * number, heap_used_bytes=5.8 * GIB))
        result = play_round(state, windows, settings)
        state = result.state
        found = tabulate_decisions(result, settings)
        if found.num_rows:
            return found
    raise AssertionError("nothing was decided")


class Scans:
    """Lists a directory, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, path: Path) -> Iterator[os.DirEntry[str]]:
        self.asked += 1
        return os.scandir(path)


def settle(directory: Path, seconds: float = 100.0) -> None:
    os.utime(directory, (time.time() - seconds,) * 2)


def test_a_directory_to_which_nothing_came_is_not_listed_again(tmp_path: Path, decisions: Any):
    directory, scans = FleetDirectory(tmp_path), Scans()
    found = NewDecisions(tmp_path / "decisions", scans)
    assert found.find() == [], "there is no directory yet"
    for batch in (2, 1):
        directory.write_decisions(batch, decisions)
    settle(tmp_path / "decisions")
    assert [path.name for path in found.find()] == ["batch-000000001.jsonl", "batch-000000002.jsonl"]
    asked = scans.asked
    for _ in range(10):
        assert found.find() == []
    assert scans.asked == asked
    directory.write_decisions(3, decisions)
    assert [path.name for path in found.find()] == ["batch-000000003.jsonl"]


def test_what_comes_in_the_same_moment_as_a_look_is_found_by_the_next_one(tmp_path: Path, decisions: Any):
    directory = FleetDirectory(tmp_path)
    found = NewDecisions(tmp_path / "decisions")
    directory.write_decisions(1, decisions)
    status = (tmp_path / "decisions").stat()
    assert len(found.find()) == 1
    directory.write_decisions(2, decisions)
    os.utime(tmp_path / "decisions", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(found.find()) == 1, "clocks of files tick slowly"


def test_the_controller_puts_files_away_after_a_day_and_nothing_is_lost(tmp_path: Path, decisions: Any):
    directory = FleetDirectory(tmp_path)
    for batch in range(1, 5):
        directory.write_decisions(batch, decisions)
        if batch < 4:
            path = tmp_path / "decisions" / f"batch-{batch:09d}.jsonl"
            os.utime(path, (time.time() - 2 * DAY,) * 2)
    # one that was started anew: each looks once an hour
    FleetDirectory(tmp_path).write_decisions(5, decisions)
    assert len(NewDecisions(tmp_path / "decisions").find()) == 2
    assert [batch for batch, _ in directory.decision_files()] == [1, 2, 3, 4, 5]
    assert [batch for batch, _ in directory.decision_files(after=1)] == [2, 3, 4, 5], "a journal long away"
    assert [batch for batch, _ in directory.decision_files(after=3)] == [4, 5]
    assert directory.decision_count() == 5
