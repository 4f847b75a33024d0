"""Windows, proposals and situations in few words, for the tests of the manager and its guardrails."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import BatchExecution, MetricWindow
from penstock.dataflow.window import (
    EXECUTORS,
    ApplicationWindow,
    OperatorQuery,
    OperatorWindow,
    SlotQuery,
    SlotWindow,
    SourceRate,
)
from penstock.decide.manager.guardrails import Situation
from penstock.decide.manager.history import Decision, ManagerState
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import HELD_UTILISATION, UTILISATION, ExpectedEffect, Hold, Scale

INTERVAL = 10.0
GRAPH = LogicalGraph(["read", "map", Operator("write", scalable=False)], [("read", "map"), ("map", "write")])


def window(
    end: float = 100.0,
    held: int | Mapping[str, int] = 4,
    *,
    offered: float = 1000.0,
    observed: float | None = None,
    backlog: float = 0.0,
    busy: float | None = None,
    start: float | None = None,
) -> ApplicationWindow:
    """One window of one query with one source; it keeps up unless said otherwise."""
    begins = end - INTERVAL if start is None else start
    batches = () if busy is None else (BatchExecution(1, begins, busy * INTERVAL, 4, 1.0, ()),)
    rate = SourceRate(offered, offered if observed is None else observed, backlog)
    if isinstance(held, int):
        on_slots = SlotQuery("q", "query", GRAPH, {"read": rate}, batches, INTERVAL)
        return SlotWindow("app", begins, end, {EXECUTORS: held}, (on_slots,))
    empty = np.zeros(0)
    metrics = MetricWindow(begins, end, np.zeros(0, dtype=np.int64), empty, empty, empty, empty)
    query = OperatorQuery("q", "query", GRAPH, {"read": rate}, metrics)
    return OperatorWindow("app", begins, end, held, (query,))


def scale(
    size: int | Mapping[str, int],
    *,
    utilisation: float | None = None,
    then: float | None = None,
    exact: Mapping[str, float] | None = None,
) -> Scale:
    """`utilisation` is predicted for the held size, `then` for the proposed one."""
    sizes = {EXECUTORS: size} if isinstance(size, int) else size
    told = {HELD_UTILISATION: utilisation, UTILISATION: then}
    figures = {name: ratio for name, ratio in told.items() if ratio is not None}
    return Scale(sizes, "the load asks for it", ExpectedEffect("it keeps up", figures), exact or {})


def hold() -> Hold:
    return Hold("the size is right")


def situation(
    held: int | Mapping[str, int] = 4, *, behind: bool = False, now: float = 100.0, **history: object
) -> Situation:
    return Situation(now, window(now, held), ManagerState(**history), behind)


def decisions(*needs: tuple[float, int]) -> tuple[Decision, ...]:
    return tuple(Decision(at, {EXECUTORS: size}, {EXECUTORS: size}, hold()) for at, size in needs)


def outcome(action: Scale, status: Status = Status.DONE, observed: int | None = None) -> Outcome:
    reached = action.parallelism if observed is None else {EXECUTORS: observed}
    return Outcome(status, action.parallelism, action.parallelism, reached, 1.0)
