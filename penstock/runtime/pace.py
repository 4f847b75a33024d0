"""Whether an application keeps up, and how many executors it needs: from its status as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.units import figures

PERIODS_BEHIND = 2.0
"""A query reads once a period: up to one period's records wait between its batches; twice that is behind."""
USUAL_PERIOD = 10.0
"""The period of a query that has no trigger interval."""

Plain = Mapping[str, Any]


def tell_behind(status: Plain) -> str | None:
    """Say what shows that the application does not keep up; None while it does."""
    last = last_point(status)
    seconds, period = count_backlog_seconds(last), last.get("period_seconds") or USUAL_PERIOD
    if seconds is not None and seconds > PERIODS_BEHIND * period:
        return f"{figures.seconds(seconds)} of input wait"
    batch = last.get("batch_seconds")
    if batch is not None and last.get("period_seconds") and batch > last["period_seconds"]:
        return f"a batch takes {figures.seconds(batch)} of {figures.seconds(last['period_seconds'])}"
    return None


def count_backlog_seconds(point: Plain) -> float | None:
    """Return for how many seconds of input the backlog stands; None where either is unknown."""
    records, offered = point.get("backlog_records"), point.get("offered_per_second")
    if records is None or offered is None:
        return None
    if records <= 0:
        return 0.0
    return records / offered if offered > 0 else math.inf


def count_executors_needed(status: Plain) -> float | None:
    """Return the executors that hold the slots needed, in whole ones."""
    slots, executors, needed = (status.get(key) for key in ("slots", "executors", "slots_needed"))
    if not slots or not executors or needed is None:
        return None
    return float(math.ceil(needed / (slots / executors) - 1e-9))


def last_point(status: Plain) -> Plain:
    """Return the newest figures of a status; nothing before the first."""
    recent = status.get("recent")
    last: Plain = recent[-1] if recent else {}
    return last


def describe_pace(status: Plain) -> str:
    """Say in a line whether the application keeps up, and what it holds and needs."""
    if not status.get("recent"):
        return "starting: no batch was seen yet"
    behind = tell_behind(status)
    held, needed = status.get("executors"), count_executors_needed(status)
    sizes = f"{figures.count(held)} executors held, {figures.count(needed)} needed"
    return f"{f'behind: {behind}' if behind else 'keeps up'}; {sizes}"
