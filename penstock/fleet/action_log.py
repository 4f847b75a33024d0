"""The controller's decisions in the journal, caught up from the files: nothing is lost while it is away."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import ExpectedEffect, Resize, Scale
from penstock.decide.sage.columns import SIZE, held_of
from penstock.decide.sage.sizes import spark_settings
from penstock.decide.verdict import Waiting
from penstock.errors import BadInput, JournalUnavailable
from penstock.fleet.decision import MOST_CLOCK_SECONDS, FleetDecision, is_number
from penstock.fleet.keys import FleetKey
from penstock.fleet.places import FleetDirectory, parse_decision, read_decision_lines
from penstock.journal.store import Journal

log = logging.getLogger(__name__)

OWNER, KIND, KEY = "penstock-fleet", "fleet", "journalled"


class ActionLog:
    """Writes decisions in the order of batches; a batch half-written before a crash is written again.

    The journal merges the same decision of an application into one row with a count, so that is harmless.
    With a key only signed decisions are written.
    """

    def __init__(self, directory: FleetDirectory, journal: Journal, key: FleetKey | None = None) -> None:
        self._directory, self.journal, self._key = directory, journal, key

    def catch_up(self, up_to: float = math.inf) -> bool:
        """Write what is not in the journal yet; False, and a line in the log, while it is away.

        `up_to` is the batch that is being done: a file with a higher number is not the controller's.
        """
        try:
            known = self.journal.recall(OWNER, KIND).get(KEY, {}).get("batch", -1)
            done = known if isinstance(known, int) else -1
            for batch, path in self._directory.decision_files(done, up_to):
                rows = self._read(path, time.time())
                for row in rows:
                    self._write(row)
                latest = max((row["at"] for row in rows), default=0.0)
                self.journal.remember(latest, OWNER, KIND, KEY, {"batch": batch})
        except JournalUnavailable as error:
            log.warning("decisions are not in the journal yet: %s", error)
            return False
        return True

    def _read(self, path: Path, now: float) -> list[dict[str, Any]]:
        """Return the good decisions of a file; a bad row or file neither stops the job nor hides others."""
        try:
            lines = read_decision_lines(path)
        except BadInput as error:
            log.warning("decisions do not get into the journal: %s", error)
            return []
        good = []
        for line in lines:
            try:
                row = parse_decision(line)
                _check(row, now + MOST_CLOCK_SECONDS)
                if self._key is not None:
                    self._key.for_application(row["application"]).open_decision(row)
                good.append(row)
            except (BadInput, LookupError, TypeError, ValueError) as error:
                log.warning("a decision does not get into the journal: %s: %s", path, error)
        return good

    def _write(self, row: Mapping[str, Any]) -> None:
        """Write one decision as sent: the application's own guardrails judge it, in its own journal."""
        sent = Waiting("sent to the application's agent", row["expires_at"])
        self.journal.decided(row["at"], row["application"], _answer(row), sent, "sage")


def _check(row: Mapping[str, Any], latest: float) -> None:
    """Refuse what no round decides, and what a journal would not take."""
    FleetDecision.from_row(row, latest)
    for key in ("application", "symptom"):
        if not isinstance(row[key], str) or "\0" in row[key]:
            raise BadInput(f"{key}: a text without NUL is expected")
    for key in ("at", "measured", "bound"):
        if not is_number(row[key]):
            raise BadInput(f"{key}: a number is expected")
    if not row["at"] <= latest:
        raise BadInput(f"at: {row['at']:g} is in the future")
    _answer(row)


def _answer(row: Mapping[str, Any]) -> Resize | Scale:
    expected = ExpectedEffect("", {"measured": row["measured"], "bound": row["bound"]})
    if not row["settings"]:
        return Scale({EXECUTORS: int(row["parallelism"])}, row["reason"], expected)
    settings, seen = orjson.loads(row["settings"]), {row["symptom"]: row["measured"]}
    return Resize(settings, row["reason"], expected, _before(row), seen)


def _before(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that the settings had."""
    held, after = (
        held_of(np.array([_size(row, f"{prefix}_{name}") for name in SIZE])) for prefix in ("held", "after")
    )
    return spark_settings(after, held)


def _size(row: Mapping[str, Any], key: str) -> float:
    """Read a size in a decision; an unknown driver's heap is null, since JSON has no NaN."""
    value = row[key]
    return math.nan if value is None and key.endswith("driver_heap_bytes") else float(value)
