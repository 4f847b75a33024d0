"""Cells that are done, in a file: a run that was broken off goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import orjson

from penstock.errors import BadInput
from penstock_lab.experiments.faults.matrix import Cell
from penstock_lab.experiments.field.kept import cut_unfinished
from penstock_lab.experiments.measurement import Row


class KeptCells:
    """The rows of cells that were tried: what was tried once is not tried again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = cut_unfinished(path).splitlines()
        self._rows = dict(_read_line(path, number, line) for number, line in enumerate(lines, start=1))

    def find(self, cell: Cell) -> Row | None:
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
