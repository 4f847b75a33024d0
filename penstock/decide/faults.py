"""Faults around a query on slots that no number of executors mends, in the words of a reason.

Each says what was seen, and what to look at. While one lasts the size is held: costs and rates that are seen
beside it are not those of the query.
"""

from __future__ import annotations

import math

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, SlotQuery

LONG = 3.0
"""Periods after which a batch that has not ended is behind, whatever else it does."""


def find_unknown_source(query: SlotQuery) -> NotReady | None:
    """Say why it is not known what a source is offered, where the source itself tells that."""
    for name, source in query.sources.items():
        if math.isnan(source.offered_per_second) and source.unknown_because:
            reason = f"what is offered to {name!r} is unknown: {source.unknown_because}"
            return NotReady(reason, "a reading of the source")
    return None


def find_sleep(query: SlotQuery, period: float) -> NotReady | None:
    """Say for how long a batch has been on the driver alone, where that is several periods."""
    if query.outside_seconds < LONG * period:
        return None
    return NotReady(
        f"for {query.outside_seconds:.0f} s no task has run while a batch is under way: the driver plans, "
        "commits or runs your code, as in foreachBatch, and more executors do not shorten that",
        "the end of the batch",
    )


def find_lag(query: SlotQuery, window: ApplicationWindow) -> NotReady | None:
    """Name the executors beside which the others wait."""
    if not query.lagging:
        return None
    hosts = {one.executor_id: one.host for one in window.executors}
    slow = [
        f"executor {one.executor} on {hosts.get(one.executor, 'a host that is gone')} takes "
        f"{one.times_others:.1f} times as long as the others for the same work"
        for one in query.lagging
    ]
    return NotReady(
        f"{'; '.join(slow)}: batches wait for it, and more executors do not make it faster; look at that "
        "host, or set spark.speculation",
        "a batch without it",
    )


def find_left_out(query: SlotQuery) -> NotReady | None:
    """Say why no batch of the window can be judged, where one had ended."""
    return NotReady(query.left_out, "the next batch") if query.left_out and not query.batches else None
