"""What operators said of applications: pins, vetoes and forces, from one JSON file.

    {"words": {"by": "ops", "pin": ["heap"], "veto": ["P3"], "force": {"rule": "P6", "id": "ticket-12"}}}

A force is obeyed once; another id makes it another force.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import orjson

from penstock.decide.sage_metrics import Overrides, Rule
from penstock.decide.sage_overrides import said_of
from penstock.errors import BadInput


def read_overrides(path: Path | None) -> dict[str, tuple[Overrides, int]]:
    """Application → what was said of it and the number of its force; no file says nothing."""
    if path is None or not path.exists():
        return {}
    try:
        given = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise BadInput(f"{path}: {error}") from None
    if not isinstance(given, dict):
        raise BadInput(f"{path}: an object is expected, application → what is said of it")
    return {name: _override(said, f"{path}: {name}") for name, said in given.items()}


def _override(said: Any, place: str) -> tuple[Overrides, int]:
    found = said_of(said, place)
    if found.values:
        raise BadInput(f"{place}: pin: a pin keeps a value here; `penstock override` sets one")
    # a small number, since columnar code keeps it
    force_id = zlib.crc32(found.force_id.encode()) + 1 if found.overrides.forced is not Rule.NONE else 0
    return found.overrides, force_id
