"""Orders that people give by hand: each is carried out, and written down with who gave it."""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from penstock.dataflow.costs.foresight import write_outlook
from penstock.dataflow.window import EXECUTORS
from penstock.decide.goals import SizeBounds
from penstock.decide.policy import ExpectedEffect, Hold, Scale
from penstock.decide.verdict import NothingToDo
from penstock.errors import BadInput, JournalUnavailable
from penstock.runtime.loop import Loop

log = logging.getLogger(__name__)

POLICY = "by hand"
LONGEST_NAME = 200


def name_user(ask: Callable[[], str] = getpass.getuser) -> str:
    """Say whose word it is; in a container a user may have a number and no name."""
    try:
        return ask()
    except (KeyError, OSError, ImportError):
        return f"user {os.getuid()}"


def read_name(request: Mapping[str, Any]) -> str:
    """Read who gives an order: on a control socket it is this user, whatever name a client adds."""
    named = request.get("by")
    return " ".join(named.split())[:LONGEST_NAME] if isinstance(named, str) and named.strip() else "hand"


def pause(loop: Loop, now: float, by: str) -> None:
    """Let the loop propose nothing."""
    _write_down(loop, now, f"paused by {by}")
    loop.pause(f"paused by {by}")


def resume(loop: Loop, now: float, by: str) -> None:
    """Let the loop propose again."""
    _write_down(loop, now, f"resumed by {by}")
    loop.resume()


def read_size(request: Mapping[str, Any]) -> int:
    """Read a number of executors."""
    executors = request.get("executors")
    if not isinstance(executors, int) or isinstance(executors, bool):
        raise BadInput(f"executors: a whole number is expected, not {executors!r}")
    return executors


def order_size(loop: Loop, bounds: SizeBounds, executors: int, by: str) -> int:
    """Order a number of executors, within the bounds of the settings; the next tick begins it."""
    if bounds.clamp(executors) != executors:
        allowed = f"min_executors is {bounds.least}, max_executors {bounds.most}"
        raise BadInput(f"{executors} executors are not allowed: {allowed}")
    expected = ExpectedEffect("as whoever ordered it expects")
    loop.order(Scale({EXECUTORS: executors}, f"set to {executors} executors by {by}", expected))
    return executors


def list_outlooks(loop: Loop) -> list[dict[str, Any]]:
    """Return as plain data what other sizes can be foreseen from; nothing where no costs are fitted."""
    written = [write_outlook(outlook) for outlook in loop.timeline.outlooks]
    return [] if None in written else [one for one in written if one is not None]


def _write_down(loop: Loop, now: float, reason: str) -> None:
    """Write an order to the journal; one that cannot be written is carried out all the same."""
    log.info("%s: %s", loop.application, reason)
    loop.timeline.decided(now, NothingToDo(reason))
    try:
        loop.record.decided(now, loop.application, Hold(reason), NothingToDo(reason), POLICY)
    except JournalUnavailable as error:
        log.warning("%s: it was %s, which is not in the journal: %s", loop.application, reason, error)
