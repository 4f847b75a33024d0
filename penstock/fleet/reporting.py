"""How an agent reaches its fleet: what `penstock.attach(..., report_to=...)` uses."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from penstock.errors import BadInput
from penstock.fleet.agent import Transport
from penstock.fleet.decision import LOOK_BACK_SECONDS, FleetDecision
from penstock.fleet.files import Ownership, find_trusted_users
from penstock.fleet.keys import ApplicationKey, read_key, write_line
from penstock.fleet.places import (
    NewDecisions,
    append_window,
    parse_decision,
    parse_place,
    read_decision_lines,
)

log = logging.getLogger(__name__)


class DirectoryTransport:
    """Windows as files in `windows/`, decisions from the files in `decisions/`, each file read once.

    With a key decisions count by their signature; without one those in files that only this user or root can
    have written.
    """

    def __init__(self, root: Path, key: ApplicationKey | None = None) -> None:
        self._decisions, self._key = NewDecisions(root / "decisions"), key
        self._windows = root / "windows"
        self._refused = False
        self.refusal = ""

    def publish(self, record: Mapping[str, Any]) -> None:
        """Put one window where the controller reads it."""
        line = write_line(record, self._key)
        append_window(self._windows, str(record["application"]), float(record["end"]), line)

    def decisions(self, application: str) -> Sequence[FleetDecision]:
        """Return the decisions for this application in files that were not read before."""
        found: list[FleetDecision] = []
        now = time.time()
        owners = Ownership(find_trusted_users()) if self._key is None else None
        folder = self._decisions.directory
        self.refusal = owners.distrust_directory(folder) if owners is not None and folder.is_dir() else ""
        if self.refusal:
            self._refuse(self.refusal)
            return []
        for path in self._decisions.find():
            try:
                if path.stat().st_mtime >= now - LOOK_BACK_SECONDS:
                    fault = owners.distrust_file(path) if owners is not None else ""
                    found += self._refuse(fault) if fault else self._read_file(path, application, now)
            except (BadInput, OSError) as error:
                # the controller decides again when nobody answers, so that one file must not stop all others
                log.warning("decisions are passed over: %s: %s", path, error)
        return found

    def _read_file(self, path: Path, application: str, now: float) -> list[FleetDecision]:
        """Return the decisions for an application in a file; a bad one is passed over alone."""
        # the controller writes the application's name first, so that others' decisions need not be parsed
        begin = orjson.dumps({"application": application})[:-1] + b","
        found: list[FleetDecision] = []
        for line in read_decision_lines(path):
            if not line.startswith(begin):
                continue
            try:
                row = parse_decision(line)
                opened = row if self._key is None else self._open(row, self._key)
                if opened.get("application") == application:
                    found.append(FleetDecision.from_row(opened, now))
            except BadInput as error:
                log.warning("a decision is passed over: %s: %s", path, error)
        return found

    def _open(self, row: Mapping[str, Any], key: ApplicationKey) -> Mapping[str, Any]:
        """Return what was signed; nothing where the signature does not fit."""
        try:
            return key.open_decision(row)
        except (TypeError, ValueError) as error:
            self._refuse(str(error))
            return {}

    def _refuse(self, fault: str) -> list[FleetDecision]:
        """Say once that some are passed over; the controller's come again, and so may the others."""
        if not self._refused:
            log.warning("decisions are not believed, and passed over: %s", fault)
        self._refused = True
        return []


def connect_to_fleet(
    report_to: str,
    application_name: str,
    key_file: str | None = None,
    kafka_options: Mapping[str, str] | None = None,
) -> Transport:
    """Return how an application reaches its fleet.

    `report_to` is the directory of the fleet, or kafka://HOST:PORT/NAME for the topics NAME-windows and
    NAME-decisions. The key file holds the fleet's key, or that of this application alone.
    """
    place, key = parse_place(report_to, kafka_options), _key(key_file, application_name)
    if isinstance(place, Path):
        return DirectoryTransport(place, key)
    from penstock.fleet.kafka import KafkaTransport

    return KafkaTransport(place, key)


def _key(key_file: str | None, application_name: str) -> ApplicationKey | None:
    if key_file is None:
        return None
    try:
        return read_key(Path(key_file)).for_application(application_name)
    except BadInput as error:
        raise BadInput(f"fleet_key_file: {error}") from None
