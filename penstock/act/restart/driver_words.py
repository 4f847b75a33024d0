"""Messages of a driver, read as events; numbers and texts that no honest driver sends are rejected."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import orjson

from penstock.act.restart import machine
from penstock.units.texts import show_value

log = logging.getLogger(__name__)

LARGEST_ACTION = 2**31
"""Actions are numbered by the journal, from 1 on."""
LATE_SECONDS = 60.0
"""By so much at most a batch may have ended before the supervisor hears of it."""
MOST_STATUSES = 1000


def read_event(message: Mapping[str, Any], now: float, wall: float) -> machine.Event | None:
    """Read a message; None for one that is no event.

    `now` is by a clock that is never set, `wall` by the one that driver and supervisor share.
    """
    try:
        match message.get("kind"):
            case "attached":
                return machine.Attached(_read_settings(message))
            case "batch":
                return machine.BatchEnded(_read_moment(message["at"], now, wall), bool(message["idle"]))
            case "restart":
                return machine.Asked(_read_action(message["action"]), _read_settings(message))
            case "stopped":
                return machine.QueriesStopped()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        log.warning("a message of the driver cannot be read: %r", error)
    return None


def read_statuses(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the statuses that a driver tells at its end; nothing if they are none, or cannot be printed."""
    found = message.get("statuses")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        return []
    try:
        # JSON can be read deeper than it can be written
        orjson.dumps({"applications": [found]})
    except TypeError as error:
        log.warning("statuses of the driver cannot be printed: %s", error)
        return []
    return found[:MOST_STATUSES]


def _read_action(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < LARGEST_ACTION:
        raise ValueError(f"no action has the number {show_value(number)}")
    return number


def _read_moment(at: object, now: float, wall: float) -> float:
    """Return when a batch ended, by the clock of `now`: it is told moments later."""
    if not isinstance(at, int | float) or isinstance(at, bool) or not math.isfinite(at):
        raise ValueError(f"no batch ended at {show_value(at)}")
    return now - min(max(0.0, wall - at), LATE_SECONDS)


def _read_settings(message: Mapping[str, Any]) -> dict[str, str]:
    settings = message["settings"]
    nested = [key for key, value in settings.items() if isinstance(value, dict | list)]
    if nested:
        raise ValueError(f"{show_value(nested[0])} is no setting of Spark: it has parts")
    return {str(key): str(value) for key, value in settings.items()}
