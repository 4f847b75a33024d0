"""Rehearsals of cells that the proving ground tries: without Spark, which is made up.

    python -m penstock_lab.experiments.faults.rehearsals

They show what the product does after such a fault, and not what Spark does. A cell that was only rehearsed
counts as left to try; one that goes wrong counts as wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock_lab.experiments.faults.matrix import (
    BROKER_AWAY,
    CHECKPOINT_FAULTS,
    DRIVER_FAULTS,
    EXECUTOR_FAULTS,
    EXECUTOR_SLOW,
    FaultCell,
    list_cells,
)
from penstock_lab.experiments.faults.rows import is_wrong
from penstock_lab.experiments.faults.supervised.trial import try_restart
from penstock_lab.experiments.faults.trials import MOMENTS, WORLDS, KeptCells
from penstock_lab.experiments.faults.virtual import MakeWorld, try_world
from penstock_lab.experiments.faults.worlds.fleet import FleetWorld
from penstock_lab.experiments.faults.worlds.twins import LedPipelineWorld
from penstock_lab.experiments.faults.worlds.world import GrowingWorld
from penstock_lab.experiments.measurement import Row

KEPT = Path("artifacts") / "faults-rehearsed.jsonl"
Try = Callable[[FaultCell], Row]
_UNTOLD = ((EXECUTOR_SLOW, GrowingWorld), (EXECUTOR_SLOW, FleetWorld))
"""Their batches do not tell on which executor a task ran, so that no slow one can be found."""


def find_rehearsal(cell: FaultCell, moments: int) -> Try | None:
    """Return how a cell of the ground is rehearsed; None where only Spark itself can show it."""
    if cell.part == "restart":
        is_known = cell.fault in (*DRIVER_FAULTS, *CHECKPOINT_FAULTS)
        return partial(_rehearse, partial(try_restart, runs=min(moments, 2))) if is_known else None
    make = _choose_world(cell)
    if cell.fault not in (*EXECUTOR_FAULTS, *DRIVER_FAULTS, BROKER_AWAY) or (cell.fault, make) in _UNTOLD:
        return None
    return partial(_rehearse, partial(try_world, make=make, moments=moments))


def _rehearse(attempt: Try, cell: FaultCell) -> Row:
    return {**attempt(cell), "rehearsed": True}


def _choose_world(cell: FaultCell) -> MakeWorld:
    """Return the world of a part; another process takes over the pipeline of a driver that is gone."""
    if cell.part == "pipeline" and cell.fault in DRIVER_FAULTS:
        return LedPipelineWorld
    return WORLDS[cell.part]


def main() -> int:
    """Rehearse every cell that can be, and was not yet; return 1 if one is wrong."""
    kept, rows = KeptCells(KEPT), []
    for cell in list_cells():
        rehearse = None if cell.cannot_occur else find_rehearsal(cell, MOMENTS)
        if rehearse is not None:
            rows.append(kept.find(cell) or kept.add(rehearse(cell)))
            told = "wrong" if is_wrong(rows[-1]) else f"{rows[-1]['seconds_to_recover']:.0f} s"
            print(f"{cell.fault}, {cell.part}: {told}", file=sys.stderr, flush=True)
    return int(any(map(is_wrong, rows)))


if __name__ == "__main__":
    sys.exit(main())
