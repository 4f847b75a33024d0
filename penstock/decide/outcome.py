"""The outcome of an accepted proposal; the manager compares it with the expected effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """How an action ended."""

    DONE = "done"
    """Everything that was asked for is there, and was seen to be there."""
    PARTIAL = "partial"
    """The bounded wait ended with less than was asked for; what is there stays."""
    FAILED = "failed"
    """Nothing changed, and the reason is known."""
    UNKNOWN = "unknown"
    """The controller stopped between intent and outcome; Spark's own report was taken instead."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an action: planned, requested and observed parallelism kept apart."""

    status: Status
    planned: Mapping[str, int]
    requested: Mapping[str, int]
    observed: Mapping[str, int]
    seconds: float
    detail: str = ""
