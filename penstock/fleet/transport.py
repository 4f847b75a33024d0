"""How agents and controller meet in a directory that both can reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from penstock.fleet.agent import FleetDecision
from penstock.fleet.places import FleetDirectory, append_window, read_table


class DirectoryTransport:
    """Windows as files in `windows/`, decisions from the files in `decisions/`, each file read once."""

    def __init__(self, root: Path) -> None:
        self._directory = FleetDirectory(root)
        self._windows = root / "windows"
        self._read_up_to = -1

    def publish(self, record: Mapping[str, Any]) -> None:
        """Put one window where the controller reads it."""
        append_window(self._windows, str(record["application"]), float(record["end"]), dict(record))

    def decisions(self, application: str) -> Sequence[FleetDecision]:
        """Decisions for this application in files that were not read before."""
        found: list[FleetDecision] = []
        for batch, path in self._directory.decision_files(self._read_up_to):
            table = read_table(path)
            mine = table.filter(pc.equal(table["application"], application))
            found += [FleetDecision.from_row(row) for row in mine.to_pylist()]
            self._read_up_to = batch
        return found
