"""The taking over of a pipeline: a new leader closes the actions that the one before left open."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.journal.ports import Record
from penstock.runtime.follow_up import conclude_left_open

log = logging.getLogger(__name__)


def close_left_open(record: Record, before: str | None, held: Mapping[str, int], now: float) -> None:
    """Close what the leader before left open with what is there now: nothing is done a second time."""
    for action in record.unfinished(before) if before else ():
        record.ended(now, action.action_id, conclude_left_open(now, action, held))
        log.warning("%s: action %d was left open, and is closed", before, action.action_id)
