"""What operators said of applications: pins, vetoes and forces, from one JSON file.

    {"words": {"by": "ops", "pin": ["heap"], "veto": ["P3"], "force": {"rule": "P6", "id": "ticket-12"}}}

A force is obeyed once; another id makes it another force. Every version of the file that could be read is
kept beside it with its time. A file that is being edited must not stop the fleet, nor may what was said be
forgotten over it: while it cannot be read the last version counts.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from penstock.decide.sage_metrics import Overrides, Rule
from penstock.decide.sage_overrides import said_of
from penstock.errors import BadInput

log = logging.getLogger(__name__)

LOG = "overrides-log.jsonl"
Said = dict[str, tuple[Overrides, int]]
"""Application → what was said of it, and the number of its force."""


def read_overrides(path: Path | None) -> Said:
    """What the file says; no file says nothing, a bad one is an error that names it."""
    return _said(_given(path), str(path))


def overrides_in_effect(path: Path | None) -> tuple[Said, str]:
    """What counts now, and what is wrong with the file if it cannot be read."""
    try:
        return read_overrides(path), ""
    except BadInput as error:
        assert path is not None
        return _said(_last(path), str(path.with_name(LOG))), str(error)


def keep_overrides(path: Path, now: float) -> None:
    """Add what the file says to the log of its versions, if it is new and can be read."""
    try:
        given = _given(path)
        _said(given, str(path))
        if given == _last(path):
            return
        _append(path.with_name(LOG), orjson.dumps({"at": now, "said": given}) + b"\n")
    except (BadInput, OSError) as error:
        log.warning("what operators said last goes on to count: %s", error)


def _append(log_file: Path, line: bytes) -> None:
    """Add a line; one that a crash has cut off would spoil it, and is ended first."""
    with log_file.open("ab+") as kept:
        if kept.tell():
            kept.seek(-1, os.SEEK_END)
            line = line if kept.read(1) == b"\n" else b"\n" + line
        kept.write(line)


def _given(path: Path | None) -> Mapping[str, Any]:
    try:
        if path is None or not path.exists():
            return {}
        given = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise BadInput(f"{path}: {error}") from None
    if not isinstance(given, dict):
        raise BadInput(f"{path}: an object is expected, application → what is said of it")
    return given


def _last(path: Path) -> Mapping[str, Any]:
    """The newest version in the log; a line that was cut off by a crash is none."""
    try:
        lines = path.with_name(LOG).read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    for line in reversed(lines):
        try:
            said = orjson.loads(line)["said"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue
        if isinstance(said, dict):
            return said
    return {}


def _said(given: Mapping[str, Any], place: str) -> Said:
    return {name: _override(said, f"{place}: {name}") for name, said in given.items()}


def _override(said: Any, place: str) -> tuple[Overrides, int]:
    found = said_of(said, place)
    if found.values:
        raise BadInput(f"{place}: pin: a pin keeps a value here; `penstock override` sets one")
    # a small number, since columnar code keeps it
    force_id = zlib.crc32(found.force_id.encode()) + 1 if found.overrides.forced is not Rule.NONE else 0
    return found.overrides, force_id
