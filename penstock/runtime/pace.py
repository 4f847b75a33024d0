"""Whether an application keeps up, and how many executors it needs: from its status as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.units import figures

Plain = Mapping[str, Any]


def tell_behind(status: Plain) -> str | None:
    """Say what shows that the application is behind; None while all its queries keep up.

    `dataflow.summary.is_behind` decides that, for the metric as well: here it is only put in words.
    """
    queries = status.get("queries", ())
    late = [query for query in queries if query.get("behind")]
    if not late:
        return None
    if len(queries) == 1:
        return _tell_delay(late[0])
    return "; ".join(f"{query['name']}: {_tell_delay(query)}" for query in late)


def _tell_delay(query: Plain) -> str:
    batch, period, waiting = (
        query.get("batch_seconds"),
        query.get("period_seconds"),
        count_backlog_seconds(query),
    )
    told = []
    if batch and period and batch > period:
        told.append(f"a batch takes {figures.seconds(batch)} of {figures.seconds(period)}")
    if waiting and math.isfinite(waiting):
        told.append(f"{figures.seconds(waiting)} of input wait")
    elif query.get("backlog_records"):
        told.append(f"{figures.count(query['backlog_records'])} records wait")
    return ", ".join(told)


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
