"""What operators said of applications: pins, vetoes and forces, from one JSON file.

    {"words": {"by": "ops", "pin": ["heap"], "veto": ["P3"], "force": {"rule": "P6", "id": "ticket-12"}}}

A force is obeyed once; another id makes it another force.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import orjson

from penstock.decide.sage_metrics import Overrides, Parameter, Rule
from penstock.errors import BadInput

_KEYS = {"by", "pin", "veto", "force"}


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
    if not isinstance(said, dict) or not set(said) <= _KEYS:
        raise BadInput(f"{place}: an object with {', '.join(sorted(_KEYS))} is expected")
    force = said.get("force") or {}
    if force and not (isinstance(force, dict) and set(force) == {"rule", "id"}):
        raise BadInput(f"{place}: force: a rule and an id are expected")
    pinned = frozenset(_parameter(name, place) for name in said.get("pin", ()))
    vetoed = frozenset(_rule(name, place) for name in said.get("veto", ()))
    forced = _rule(force["rule"], place) if force else Rule.NONE
    force_id = zlib.crc32(str(force["id"]).encode()) + 1 if force else 0
    return Overrides(pinned, vetoed, forced, str(said.get("by", ""))), force_id


def _parameter(name: str, place: str) -> Parameter:
    try:
        return Parameter[str(name).upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(parameter.name.lower().replace("_", "-") for parameter in Parameter)
        raise BadInput(f"{place}: pin: unknown parameter {name!r}; known: {known}") from None


def _rule(name: str, place: str) -> Rule:
    number = str(name).upper().removeprefix("P")
    if not number.isdigit() or not 1 <= int(number) <= max(Rule):
        raise BadInput(f"{place}: unknown rule {name!r}; known: P1 to P{int(max(Rule))}")
    return Rule(int(number))
