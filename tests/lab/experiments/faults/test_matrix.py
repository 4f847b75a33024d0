"""The matrix has no empty cell, and each trial sees a fault that does harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ActionFailed, BadInput
from penstock_lab.experiments.faults import trials
from penstock_lab.experiments.faults.matrix import FAULTS, PARTS, REASONS, FaultCell, list_cells
from penstock_lab.experiments.faults.rows import make_empty_row
from penstock_lab.experiments.faults.trials import KeptCells
from penstock_lab.experiments.faults.virtual import choose_moments, find_recovery, try_world
from penstock_lab.experiments.faults.worlds.moving import MovingWorld
from penstock_lab.experiments.faults.worlds.world import GrowingWorld
from tests.lab.claims.test_faults import a_row

AWAY = FaultCell("journal away", "loop")


def test_every_fault_meets_every_part_once():
    cells = list(list_cells())
    assert len(cells) == len({cell.key for cell in cells}) == len(FAULTS) * len(PARTS)
    assert {cell.key for cell in cells if cell.cannot_occur} == set(REASONS)
    assert all(len(reason) > 40 for reason in REASONS.values())


@pytest.mark.parametrize("cell", [cell for cell in list_cells() if not cell.cannot_occur], ids=str)
def test_every_cell_that_can_occur_has_a_trial(cell: FaultCell):
    assert callable(trials.CellTrials(quick=True, on_ground=make_empty_row)._choose(cell))


def test_a_quick_run_needs_neither_spark_nor_a_server_and_takes_less_than_ten_minutes():
    cells = trials.choose_cells(quick=True)
    assert not any(trials.needs_ground(cell) for cell in cells)
    assert trials.estimate_seconds(cells) < 600
    assert len(trials.choose_cells(quick=False)) == len(FAULTS) * len(PARTS)


class Harmed(MovingWorld):
    """A world that does what its fault must not do."""

    harm = ""

    def tick(self, wall: float) -> None:
        super().tick(wall)
        if not self.disturbance.is_on:
            return
        if self.harm == "twice" and self.hand.done:
            self.hand.done.append(self.hand.done[-1])
        if self.harm == "lost":
            self.memory.intended.append(77)
        if self.harm == "output":
            self.cluster.batch += 1
        if self.harm == "paused":
            self.loop.pause("for ever")


@pytest.mark.parametrize(
    ("harm", "wrong"),
    [
        ("", set()),
        ("twice", {"actions_doubled"}),
        ("lost", {"actions_lost"}),
        ("output", {"output_equal"}),
        ("paused", {"job_alive"}),
    ],
)
def test_a_trial_sees_the_harm_that_a_fault_does(harm: str, wrong: set[str]):
    harmed = type("Harm", (Harmed,), {"harm": harm})
    row = try_world(FaultCell("controller slow", "migration"), harmed, moments=1)
    calm = {"output_equal": True, "actions_doubled": 0, "actions_lost": 0, "job_alive": True}
    assert {name for name, value in calm.items() if bool(row[name]) != bool(value)} == wrong


class Stuck(GrowingWorld):
    """A world whose loop never comes round again after a fault."""

    struck = False

    def tick(self, wall: float) -> None:
        self.struck = self.struck or self.disturbance.is_on
        if not self.struck:
            super().tick(wall)


def test_a_trial_sees_that_the_right_size_never_comes():
    row = try_world(FaultCell("controller hung", "loop"), Stuck, moments=2)
    assert row["seconds_to_recover"] is None


def test_the_way_back_is_counted_from_the_end_of_the_fault():
    assert find_recovery([True] * 10, 5.0) == 0.0
    assert find_recovery([False] * 7 + [True] * 3, 5.0) == 2.0
    assert find_recovery([True, False, True], 0.0) == 2.0
    assert find_recovery([True, False], 0.0) is None


def test_faults_begin_while_an_action_is_under_way_and_just_before_it():
    assert choose_moments(30) == [31, 30, 0, 330]


def test_a_trial_that_cannot_run_is_told_and_tried_again(tmp_path: Path):
    def refuse(cell: FaultCell) -> dict[str, object]:
        raise ActionFailed("mount: permission denied")

    kept, said = KeptCells(tmp_path / "cells.jsonl"), []
    cell = FaultCell("executor killed", "loop")
    (row,) = trials.run_cells([cell], trials.CellTrials(False, refuse), kept, said.append)
    assert row["failure"] == "ActionFailed: mount: permission denied" and kept.find(cell) is None
    assert "executor killed, loop" in said[0]


def test_what_was_tried_is_kept_and_not_tried_again(tmp_path: Path):
    path = tmp_path / "cells.jsonl"
    kept, said = KeptCells(path), []
    kept.add(a_row())
    with path.open("ab") as file:
        file.write(b'{"fault": "broken o')
    again = KeptCells(path)
    rows = trials.run_cells([AWAY], trials.CellTrials(False), again, said.append)
    assert rows == [a_row()] and said == []
    again.forget()
    assert KeptCells(path).find(AWAY) is None


def test_a_file_that_is_no_record_of_cells_is_refused(tmp_path: Path):
    path = tmp_path / "cells.jsonl"
    path.write_bytes(b"[]\n")
    with pytest.raises(BadInput, match="line 1 is no cell"):
        KeptCells(path)
