"""Trials with real processes see every wrong thing in what was written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.decide.policy import ExpectedEffect, Resize
from penstock.decide.verdict import Accepted
from penstock.fleet.places import FleetDirectory
from penstock_lab.experiments.faults.disks import SmallDisk
from penstock_lab.experiments.faults.journals import FilePlace, JournalPlace
from penstock_lab.experiments.faults.regimes.fleet import FleetRegime, describe_member, list_hungry
from penstock_lab.experiments.faults.regimes.pipeline_job import NUMBERS, SQUARES, put_numbers, read_numbers
from penstock_lab.experiments.faults.supervised.driver import AFTER, BEFORE, KEY
from penstock_lab.experiments.faults.supervised.trial import Supervised
from tests.fleet.agents import a_table
from tests.fleet.test_round import SETTINGS, empty_state, play_round, tabulate_decisions


@pytest.fixture
def place(tmp_path: Path) -> JournalPlace:
    disk = SmallDisk()
    disk.path = tmp_path
    return FilePlace(disk)


@pytest.fixture
def job(tmp_path: Path, place: JournalPlace) -> Iterator[Supervised]:
    (tmp_path / "output").write_text("0\n1\n2\n")
    write_notes(tmp_path, f"1.0 start {BEFORE} ", f"2.0 start {AFTER} 1", f"3.0 batch {AFTER} 2")
    yield Supervised(tmp_path, place)


def write_notes(directory: Path, *lines: str) -> None:
    (directory / "notes").write_text("".join(f"{line}\n" for line in lines))


def test_a_restart_that_is_done_once_is_right(job: Supervised):
    job.mended_at = 1.5
    shown = job.show(0)
    assert (shown.output, shown.is_alive, shown.seconds_to_recover) == (["0", "1", "2"], True, 1.5)
    assert (shown.effects.doubled, shown.effects.lost) == (0, 0)


def test_a_restart_that_is_done_twice_is_seen(job: Supervised):
    write_notes(job.directory, f"2.0 start {AFTER} 1", f"3.0 start {AFTER} 1", f"3.0 batch {AFTER} 2")
    assert job.show(0).effects.doubled == 1


def test_a_restart_that_failed_and_was_undone_is_not_done_twice(job: Supervised):
    write_notes(job.directory, f"1.0 start {AFTER} 1", f"2.0 start {BEFORE} 1", f"3.0 batch {BEFORE} 0")
    assert job.show(0).effects.done == (1,)


def test_a_job_that_failed_or_never_got_its_memory_is_seen(job: Supervised):
    write_notes(job.directory, f"1.0 start {BEFORE} ", f"2.0 batch {BEFORE} 0")
    shown = job.show(1)
    assert not shown.is_alive and shown.seconds_to_recover is None


def test_an_action_that_nobody_closed_is_seen(job: Supervised, place: JournalPlace):
    resize = Resize({KEY: AFTER}, "more heap", ExpectedEffect(""), before={KEY: BEFORE})
    with closing(place.open()) as journal:
        decision = journal.decided(1.0, "app", resize, Accepted(resize), "sage")
        journal.intend(1.0, "app", decision, resize, resize.before)
    assert job.show(0).effects.lost == 1


class Ended:
    """A controller that ends when it is told to."""

    def terminate(self) -> None:
        """End."""

    def wait(self, timeout: float) -> int:
        return 0


def a_fleet(tmp_path: Path, *rounds: set[str]) -> FleetRegime:
    """A controller that has written these decisions, one file for each round."""
    regime = FleetRegime.__new__(FleetRegime)
    regime._directory, regime._process = FleetDirectory(tmp_path), Ended()
    for number, names in enumerate(rounds):
        state = empty_state()
        for end in range(1, 5):
            records = [describe_member(name, float(end), is_hungry=True) for name in sorted(names)]
            result = play_round(state, a_table(*records), SETTINGS)
            state = result.state
        regime._directory.write_decisions(number, tabulate_decisions(result, SETTINGS))
    return regime


def test_a_fleet_decides_once_for_each_member_that_needs_it(tmp_path: Path):
    both = list_hungry("first"), list_hungry("second")
    right = a_fleet(tmp_path / "right", *both)
    assert right.finish() and right.effects().doubled == 0
    twice = a_fleet(tmp_path / "twice", *both, {"first-0"})
    assert not twice.finish() and twice.effects().doubled == 1
    assert not a_fleet(tmp_path / "few", list_hungry("first")).finish()
    assert not a_fleet(tmp_path / "foreign", *both, {"first-1"}).finish()


def test_numbers_of_a_topic_are_told_with_repetitions(tmp_path: Path):
    put_numbers(tmp_path, 0)
    folder = tmp_path / "topics"
    (folder / SQUARES).mkdir()
    for copy in ("a", "b"):
        (folder / SQUARES / f"{copy}.parquet").write_bytes((folder / NUMBERS / "0.parquet").read_bytes())
    assert sorted(read_numbers(tmp_path, SQUARES)) == sorted(2 * read_numbers(tmp_path, NUMBERS))
