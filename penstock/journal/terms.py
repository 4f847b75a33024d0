"""The terms of a run, kept for reports: what its executors have, what it was set to keep, and prices."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from penstock.errors import PenstockError
from penstock.journal.ports import Memories

log = logging.getLogger(__name__)

KIND = "terms"


@dataclass(frozen=True, slots=True)
class Terms:
    """The known terms of one run; None for unknown ones."""

    task_cpus: int = 1
    executor_memory_bytes: float | None = None
    max_executors: int | None = None
    latency_target: float | None = None
    price_per_core_hour: float | None = None
    price_per_gb_hour: float | None = None

    @property
    def has_price(self) -> bool:
        """Whether anything has a price."""
        return self.price_per_core_hour is not None or self.price_per_gb_hour is not None


def remember_terms(memories: Memories, now: float, name: str, application: str, terms: Terms) -> None:
    """Keep the terms of a run; raises nothing, since a report can do without."""
    try:
        memories.remember(now, name, KIND, application, asdict(terms))
    except PenstockError as error:
        log.debug("%s: the terms of the run are not in the journal: %s", application, error)


def recall_terms(memories: Memories, name: str) -> dict[str, Terms]:
    """Return the terms of each run of a name, by its id, the oldest first."""
    return {run: parse_terms(body) for run, body in memories.recall(name, KIND).items()}


def parse_terms(body: Mapping[str, Any]) -> Terms:
    """Parse what is a number; another version may have written more."""
    known = {field.name for field in fields(Terms)}
    return Terms(**{key: value for key, value in body.items() if key in known and _is_number(value)})


def recall_all_terms(memories: Memories) -> dict[str, Terms]:
    """Return the terms of every run, by its id."""
    known = memories.recall_all(KIND)
    return {run: parse_terms(body) for runs in known.values() for run, body in runs.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
