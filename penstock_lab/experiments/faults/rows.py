"""Rows of the fault matrix: what disturbed runs have shown beside an undisturbed one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_lab.experiments.faults.matrix import FaultCell
from penstock_lab.experiments.measurement import Row


@dataclass(frozen=True, slots=True)
class Effects:
    """Numbers of the actions that were intended and of those that were done, each in order."""

    intended: tuple[int, ...] = ()
    done: tuple[int, ...] = ()
    left_open: int = 0
    """Actions that the journal still has as under way when nothing is under way any more."""

    @property
    def doubled(self) -> int:
        """How many were done more often than they were written down."""
        return (Counter(self.done) - Counter(set(self.intended))).total()

    @property
    def lost(self) -> int:
        """How many were written down and never done, or never closed."""
        return len(set(self.intended) - set(self.done)) + self.left_open


@dataclass(frozen=True, slots=True)
class Shown:
    """The result of one run."""

    output: object
    """A value by which two outputs can be told apart."""
    effects: Effects = Effects()
    is_alive: bool = True
    seconds_to_recover: float | None = 0.0
    """From the end of the fault until the size is right and stays so; None if that never came."""


def make_row(cell: FaultCell, undisturbed: Shown, runs: Sequence[Shown], within: float, where: str) -> Row:
    """Compare runs with the undisturbed one; `within` is the stated time for the way back."""
    times = [run.seconds_to_recover for run in runs]
    known = [seconds for seconds in times if seconds is not None]
    return {
        "fault": cell.fault,
        "part": cell.part,
        "runs": len(runs),
        "output_equal": bool(runs) and all(run.output == undisturbed.output for run in runs),
        "actions_doubled": sum(run.effects.doubled for run in runs),
        "actions_lost": sum(run.effects.lost for run in runs),
        "job_alive": bool(runs) and all(run.is_alive for run in runs),
        "seconds_to_recover": max(known) if known and len(known) == len(times) else None,
        "within_seconds": within,
        "where": where,
        "rehearsed": False,
        "cannot_occur": "",
        "failure": "",
    }


def make_empty_row(cell: FaultCell, failure: str = "") -> Row:
    """Return the row of a cell without a run: one that cannot occur, or whose trial failed."""
    figures = ("output_equal", "actions_doubled", "actions_lost", "job_alive", "seconds_to_recover")
    return {
        "fault": cell.fault,
        "part": cell.part,
        "runs": 0,
        **dict.fromkeys(figures),
        "within_seconds": None,
        "where": "",
        "rehearsed": False,
        "cannot_occur": cell.cannot_occur,
        "failure": failure,
    }


def is_late(row: Row) -> bool:
    """Tell whether a cell was not back at the right size within its time."""
    seconds = row["seconds_to_recover"]
    return bool(row["runs"]) and (seconds is None or seconds > row["within_seconds"])


def is_wrong(row: Row) -> bool:
    """Tell whether a cell that was tried shows anything that must not be."""
    wrong = not row["output_equal"] or not row["job_alive"] or row["actions_doubled"] or row["actions_lost"]
    return bool(row["runs"]) and (bool(wrong) or is_late(row))


def summarise_matrix(rows: Sequence[Row], cells: int) -> dict[str, float]:
    """Count what the claims are about; `cells` is how many there should be."""
    tried = [row for row in rows if row["runs"]]
    impossible = [row for row in rows if row["cannot_occur"]]
    return {
        "cells": cells,
        "cells_tried": len(tried),
        "cells_impossible": len(impossible),
        "cells_left": cells - len(tried) - len(impossible),
        "runs": sum(row["runs"] for row in tried),
        "cells_with_other_output": sum(not row["output_equal"] for row in tried),
        "actions_doubled": sum(row["actions_doubled"] for row in tried),
        "actions_lost": sum(row["actions_lost"] for row in tried),
        "cells_with_a_dead_job": sum(not row["job_alive"] for row in tried),
        "cells_too_late": sum(is_late(row) for row in tried),
        "longest_recovery": max((row["seconds_to_recover"] or 0.0 for row in tried), default=0.0),
    }
