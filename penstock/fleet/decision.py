"""A decision as it travels from the controller to an agent: its columns, and the validation of one row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from penstock.decide.sage.columns import SIZE
from penstock.decide.sage.settings import SageSettings
from penstock.decide.sage.sizes import sizing_settings
from penstock.errors import BadInput
from penstock.units.texts import show_value

DECISION = pa.schema(
    [
        ("application", pa.string()),
        ("decision_id", pa.int64()),
        ("at", pa.float64()),
        ("expires_at", pa.float64()),
        ("rule", pa.string()),
        ("symptom", pa.string()),
        ("measured", pa.float64()),
        ("bound", pa.float64()),
        *((f"held_{name}", pa.float64()) for name in SIZE),
        *((f"after_{name}", pa.float64()) for name in SIZE),
        ("parallelism", pa.int64()),
        ("settings", pa.string()),
        ("reason", pa.string()),
    ]
)
"""One decision: a change of parallelism, or else of Spark settings."""
CLOCK_SECONDS = 30.0
"""How far the clocks of a fleet may be apart, or one be set back, unless a setting says otherwise."""
MOST_CLOCK_SECONDS = 3600.0
"""No setting allows more."""
LOOK_BACK_SECONDS = 3600.0
"""Decisions older than this have run out."""
MOST_PARALLELISM = 1_000_000
LONGEST_REASON = 4_000
LONGEST_SETTINGS = 20_000
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line ends, changes of the writing direction, halves of characters."""


@dataclass(frozen=True, slots=True)
class FleetDecision:
    """A decision addressed to one application; sizes are absolute, so doing it again changes nothing."""

    decision_id: int
    expires_at: float
    reason: str
    parallelism: int | None = None
    settings: Mapping[str, str] | None = None

    @staticmethod
    def from_row(row: Any, now: float) -> FleetDecision:
        """Validate a row of the controller's decisions; BadInput says what is wrong with it."""
        if not isinstance(row, Mapping):
            raise BadInput(f"an object is expected, not {show_value(row)}")
        number = _check_number(row.get("decision_id"), now)
        expires_at = _check_expiry(row.get("expires_at"), number, now)
        reason = check_text(row.get("reason"), "reason", LONGEST_REASON)
        parallelism = _check_parallelism(row.get("parallelism"))
        settings = _check_settings(row.get("settings"))
        if parallelism is None and settings is None:
            raise BadInput("neither parallelism nor settings are given")
        return FleetDecision(number, expires_at, reason, parallelism, settings)


def latest_number(now: float) -> int:
    """Return the largest number that a decision can have now.

    A number is the end of one of the application's own windows, in milliseconds.
    """
    return round((now + CLOCK_SECONDS) * 1000)


def check_text(value: Any, key: str, longest: int) -> str:
    """Validate a text that is shown, logged and journalled."""
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise BadInput(f"{key}: a text of 1 to {longest} characters is expected, not {show_value(value)}")
    if _UNPRINTABLE.search(value):
        raise BadInput(f"{key}: {show_value(value)} has control characters in it")
    return value


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_number(value: Any, now: float) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= latest_number(now):
        raise BadInput(f"decision_id: {show_value(value)} is not the time of a window in milliseconds")
    return value


def _check_expiry(value: Any, number: int, now: float) -> float:
    """Refuse a decision that runs out before it is made, or is in flight for longer than any can be."""
    latest = now + CLOCK_SECONDS + SageSettings().in_flight_seconds
    # the number is rounded to a millisecond
    if not is_number(value) or not number / 1000 - 0.001 <= value <= latest:
        raise BadInput(f"expires_at: {show_value(value)} is not a time at which the decision can run out")
    return float(value)


def _check_parallelism(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MOST_PARALLELISM:
        raise BadInput(f"parallelism: 1 to {MOST_PARALLELISM} is expected, not {show_value(value)}")
    return value


def _check_settings(value: Any) -> dict[str, str] | None:
    """Parse Spark settings from their JSON; only those that a sizing writes."""
    if value is None or value == "":
        return None
    text = check_text(value, "settings", LONGEST_SETTINGS)
    try:
        settings = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"settings: {error}") from None
    if not isinstance(settings, dict) or not settings:
        raise BadInput(f"settings: an object is expected, not {show_value(text)}")
    for key, said in settings.items():
        check_text(said, f"settings: {show_value(key)}", LONGEST_SETTINGS)
    try:
        return sizing_settings(settings)
    except BadInput as error:
        raise BadInput(f"settings: {error}") from None
