"""Runs the fault matrix cell by cell; what is done is kept, so that a run that was broken off goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import orjson

from penstock.errors import BadInput, PenstockError
from penstock_lab.experiments.faults.matrix import (
    BROKER_FAULTS,
    CLOCK_FAULTS,
    FILE_FAULTS,
    HUNG,
    INPUT_FAULTS,
    SERVER_FAULTS,
    SPARK_FAULTS,
    TWO_CONTROLLERS,
    TWO_DRIVERS,
    FaultCell,
    list_cells,
)
from penstock_lab.experiments.faults.rows import make_empty_row, summarise_matrix
from penstock_lab.experiments.faults.supervised.trial import try_restart
from penstock_lab.experiments.faults.virtual import MakeWorld, try_world
from penstock_lab.experiments.faults.worlds.fleet import FleetWorld
from penstock_lab.experiments.faults.worlds.moving import MovingWorld
from penstock_lab.experiments.faults.worlds.twins import LedPipelineWorld, TwinWorld
from penstock_lab.experiments.faults.worlds.world import GrowingWorld, PipelineWorld
from penstock_lab.experiments.field.kept import cut_unfinished
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row, shorten_error

KEPT, KEPT_QUICK = Path("artifacts") / "faults.jsonl", Path("artifacts") / "faults-quick.jsonl"
QUICK_MOMENTS, MOMENTS = 2, 4
VIRTUAL_SECONDS = {"loop": 3.0, "migration": 2.0, "pipeline": 3.0, "fleet": 10.0, "restart": 15.0}
SERVER_SECONDS, GROUND_SECONDS = 30.0, 150.0
"""Rough length of a trial."""
QUICK_FAULTS = frozenset({HUNG, *FILE_FAULTS, *CLOCK_FAULTS, *INPUT_FAULTS, TWO_CONTROLLERS, TWO_DRIVERS})
"""Faults of a quick run: they need no Spark and no server."""

WORLDS: Mapping[str, MakeWorld] = {
    "loop": GrowingWorld,
    "migration": MovingWorld,
    "fleet": FleetWorld,
    "pipeline": PipelineWorld,
}
TWINS: Mapping[tuple[str, str], MakeWorld] = {
    (TWO_DRIVERS, "loop"): partial(TwinWorld, GrowingWorld),
    (TWO_DRIVERS, "migration"): partial(TwinWorld, MovingWorld),
    (TWO_CONTROLLERS, "pipeline"): LedPipelineWorld,
    # the second driver of a pipeline's name is the second controller: both reach for one lease
    (TWO_DRIVERS, "pipeline"): LedPipelineWorld,
}
Try = Callable[[FaultCell], Row]


class CellTrials:
    """Where cells are tried; the proving ground is started when the first cell needs it."""

    def __init__(self, quick: bool, on_ground: Try | None = None) -> None:
        self._moments = QUICK_MOMENTS if quick else MOMENTS
        self._on_ground = on_ground

    def try_cell(self, cell: FaultCell) -> Row:
        """Try a cell; a trial that cannot run is told in its row."""
        try:
            return self._choose(cell)(cell)
        except (PenstockError, OSError, RuntimeError, AssertionError) as error:
            return make_empty_row(cell, shorten_error(f"{type(error).__name__}: {error}"))

    def _choose(self, cell: FaultCell) -> Try:
        if needs_ground(cell):
            if self._on_ground is None:
                return partial(make_empty_row, failure="it needs the proving ground, which is not there")
            return self._on_ground
        if cell.part == "restart":
            return partial(try_restart, runs=min(self._moments, 2))
        make = TWINS.get(cell.key) or WORLDS[cell.part]
        return partial(try_world, make=make, moments=self._moments)


class KeptCells:
    """The rows of cells that were tried: what was tried once is not tried again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = cut_unfinished(path).splitlines()
        self._rows = dict(_read_line(path, number, line) for number, line in enumerate(lines, start=1))

    def find(self, cell: FaultCell) -> Row | None:
        """Return the row of a cell that was tried."""
        return self._rows.get(cell.key)

    def add(self, row: Row) -> Row:
        """Keep a row; one whose trial failed is not kept, so that it is tried again."""
        if row["failure"]:
            return row
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(orjson.dumps(row) + b"\n")
        self._rows[row["fault"], row["part"]] = row
        return row

    def forget(self) -> None:
        """Begin anew."""
        self._path.unlink(missing_ok=True)
        self._rows = {}


def _read_line(path: Path, number: int, line: bytes) -> tuple[tuple[str, str], Row]:
    try:
        row: Row = orjson.loads(line)
        return (row["fault"], row["part"]), row
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise BadInput(f"{path}, line {number} is no cell of the matrix: {error}; remove the file") from None


def needs_ground(cell: FaultCell) -> bool:
    """Tell whether a cell is tried on the proving ground."""
    return cell.fault in (*SPARK_FAULTS, *BROKER_FAULTS)


def choose_cells(quick: bool) -> list[FaultCell]:
    """Return the cells of a run; a quick one leaves out what needs Spark or a server."""
    return [cell for cell in list_cells() if not quick or cell.fault in QUICK_FAULTS]


def estimate_seconds(cells: Sequence[FaultCell]) -> float:
    """Estimate what these cells take."""
    return sum(_estimate_cell(cell) for cell in cells)


def _estimate_cell(cell: FaultCell) -> float:
    if cell.cannot_occur:
        return 0.0
    if needs_ground(cell):
        return GROUND_SECONDS
    return VIRTUAL_SECONDS[cell.part] + SERVER_SECONDS * (cell.fault in SERVER_FAULTS)


def run_cells(cells: Sequence[FaultCell], trials: CellTrials, kept: KeptCells, tell: Progress) -> list[Row]:
    """Return the rows of all cells, telling before each what is left."""
    rows: list[Row] = []
    for place, cell in enumerate(cells):
        row = make_empty_row(cell) if cell.cannot_occur else kept.find(cell)
        if row is None:
            left = estimate_seconds(cells[place:]) / 60
            which = f"cell {place + 1} of {len(cells)}: {cell.fault}, {cell.part}"
            tell(f"{which}; about {max(1.0, left):.0f} min left")
            row = kept.add(trials.try_cell(cell))
        rows.append(row)
    return rows


def run(extent: Extent, progress: Progress) -> Measurement:
    """Try every cell that can occur."""
    cells, began = choose_cells(extent.quick), time.monotonic()
    kept = KeptCells(KEPT_QUICK if extent.quick else KEPT)
    estimate = estimate_seconds(cells)
    progress(f"{len(cells)} cells, about {estimate / 60:.0f} min in all")
    if extent.quick:
        rows = run_cells(cells, CellTrials(quick=True), kept, progress)
    else:
        from penstock_lab.experiments.faults.ground import FaultGround

        with FaultGround() as ground:
            rows = run_cells(cells, CellTrials(False, ground.try_cell), kept, progress)
    failures = [f"{row['fault']}, {row['part']}: {row['failure']}" for row in rows if row["failure"]]
    if not failures:
        kept.forget()
    took = f"estimated {estimate / 60:.0f} min, took {(time.monotonic() - began) / 60:.0f} min"
    return Measurement(rows, summarise_matrix(rows, len(cells)), [took], failures, quick=extent.quick)
