"""The activity graph of a trace (Algorithm 1): timelines joined by messages, every gap explained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.diagnose.graph_kernel import (
    FILLED_GAPS,
    LOST_RECEIVES,
    LOST_SENDS,
    ORPHAN_ENDS,
    OVERLAPPING,
    Timelines,
    link_timelines,
    match_messages,
)
from penstock.diagnose.trace import Codes, Indices, Trace
from penstock.errors import BadInput

# The threshold h of section 3.4.
GAP_THRESHOLD_US = 100_000


@dataclass(frozen=True, slots=True)
class Repairs:
    """How often the trace had to be repaired before it made a graph."""

    overlapping_activities: int
    ends_without_start: int
    receives_without_send: int
    sends_without_receive: int
    unknown_gaps: int


@dataclass(frozen=True, slots=True)
class ActivityGraph:
    """A vertex per event; its edges in, given by the events they come from (-1: none).

    `previous` and `following` are the neighbours on the worker's own timeline, `source` the send of a
    receive, `target` the receive of a send; `edge_activity` and `edge_work` tell of the edge from `previous`.
    """

    trace: Trace
    previous: Indices
    following: Indices
    source: Indices
    target: Indices
    edge_activity: Codes
    edge_work: Indices
    repairs: Repairs


def activity_graph(trace: Trace, gap_threshold_us: int = GAP_THRESHOLD_US) -> ActivityGraph:
    """Links the events of a trace into its activity graph (Algorithm 1, gap rules of Table 3.2)."""
    if len(trace) >= 2**31 - 1:
        raise BadInput(f"a trace of {len(trace)} events does not fit one graph; take a shorter window")
    trace = trace.in_time_order()
    found = np.zeros(5, dtype=np.int64)
    # Large arrays come from numpy, which asks for huge pages; those of compiled code cost four times as much.
    source, target, previous, following, work = (np.empty(len(trace), dtype=np.int32) for _ in range(5))
    activity = np.empty(len(trace), dtype=np.uint8)
    match_messages(trace.worker, trace.kind, trace.correlation, trace.remote, source, target, found)
    links = Timelines(previous, following, activity, work)
    link_timelines(
        trace.time_us, trace.worker, trace.kind, trace.activity, trace.work, links, gap_threshold_us, found
    )
    repairs = Repairs(
        overlapping_activities=int(found[OVERLAPPING]),
        ends_without_start=int(found[ORPHAN_ENDS]),
        receives_without_send=int(found[LOST_RECEIVES]),
        sends_without_receive=int(found[LOST_SENDS]),
        unknown_gaps=int(found[FILLED_GAPS]),
    )
    return ActivityGraph(trace, previous, following, source, target, activity, work, repairs)
