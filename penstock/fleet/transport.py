"""How agents and controller meet in a directory that both can reach."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.fleet.agent import LOOK_BACK_SECONDS, FleetDecision
from penstock.fleet.places import FleetDirectory, append_window, read_table

log = logging.getLogger(__name__)


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
        since = time.time() - LOOK_BACK_SECONDS
        for batch, path in self._directory.decision_files(self._read_up_to):
            self._read_up_to = batch
            try:
                if path.stat().st_mtime >= since:
                    found += _decisions_in(path, application)
            except (PenstockError, OSError, LookupError, ValueError) as error:
                # the controller decides again when nobody answers, so that one file must not stop all others
                log.warning("decisions are passed over: %s: %s", path, error)
        return found


def _decisions_in(path: Path, application: str) -> list[FleetDecision]:
    table = read_table(path)
    mine = table.filter(pc.equal(table["application"], application))
    return [FleetDecision.from_row(row) for row in mine.to_pylist()]
