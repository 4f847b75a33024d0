"""What operators are to take in so that a backlog is gone within the catch-up time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.dataflow.window import SourceRate


@dataclass(frozen=True, slots=True)
class Inflow:
    """Records per second: what sources put out, and what operators take from their own topics beside it."""

    sources: Mapping[str, float]
    beside: Mapping[str, float] = field(default_factory=dict)


def inflow(
    sources: Mapping[str, SourceRate], overdue: Mapping[str, float], catch_up_seconds: float
) -> Inflow:
    """What arrives, plus what reads the backlog within the catch-up time.

    Where operators read topics of their own the backlog of each counts before itself: one that is behind
    needs more, and so does what follows it, but not another that reads the same source and keeps up.
    """
    if not overdue:
        return Inflow(
            {
                name: source.offered_per_second + source.backlog_records / catch_up_seconds
                for name, source in sources.items()
            }
        )
    return Inflow(
        {name: source.offered_per_second for name, source in sources.items()},
        {name: records / catch_up_seconds for name, records in overdue.items()},
    )
