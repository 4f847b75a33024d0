"""The controller's decisions in the journal, caught up from the files: nothing is lost while it is away."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import ExpectedEffect, Resize, Scale
from penstock.decide.sage_words import spark_settings
from penstock.decide.verdict import Waiting
from penstock.errors import BadInput, JournalUnavailable
from penstock.fleet.places import FleetDirectory, read_table
from penstock.fleet.sage_columns import SIZE, held_of
from penstock.journal.store import Journal

log = logging.getLogger(__name__)

OWNER, KIND, KEY = "penstock-fleet", "fleet", "journalled"


class ActionLog:
    """Writes decisions in the order of batches; a batch half-written before a crash is written again.

    The journal merges the same decision of an application into one row with a count, so that is harmless.
    """

    def __init__(self, directory: FleetDirectory, journal: Journal) -> None:
        self._directory, self.journal = directory, journal

    def catch_up(self) -> bool:
        """Write what is not in the journal yet; False, and a line in the log, while it is away."""
        try:
            done = int(self.journal.recall(OWNER, KIND).get(KEY, {}).get("batch", -1))
            for batch, path in self._directory.decision_files(done):
                rows = _rows(path)
                for row in rows:
                    self._write(row)
                latest = max((row["at"] for row in rows), default=0.0)
                self.journal.remember(latest, OWNER, KIND, KEY, {"batch": batch})
        except JournalUnavailable as error:
            log.warning("decisions are not in the journal yet: %s", error)
            return False
        return True

    def _write(self, row: Mapping[str, Any]) -> None:
        """What becomes of it is for the application's own guardrails to say, in its own journal."""
        sent = Waiting("sent to the application's agent", row["expires_at"])
        self.journal.decided(row["at"], row["application"], _answer(row), sent, "sage")


def _answer(row: Mapping[str, Any]) -> Resize | Scale:
    expected = ExpectedEffect("", {"measured": row["measured"], "bound": row["bound"]})
    if not row["settings"]:
        return Scale({EXECUTORS: int(row["parallelism"])}, row["reason"], expected)
    settings, seen = orjson.loads(row["settings"]), {row["symptom"]: row["measured"]}
    return Resize(settings, row["reason"], expected, _before(row), seen)


def _rows(path: Path) -> list[dict[str, Any]]:
    """The decisions of a file; one that a disk has spoilt must not stop the job, nor hide the later ones."""
    try:
        rows: list[dict[str, Any]] = read_table(path).to_pylist()
    except BadInput as error:
        log.warning("decisions do not get into the journal: %s", error)
        return []
    return rows


def _before(row: Mapping[str, Any]) -> dict[str, str]:
    """The values that the settings had."""
    held, after = (
        held_of(np.array([row[f"{prefix}_{name}"] for name in SIZE])) for prefix in ("held", "after")
    )
    return spark_settings(after, held)
