"""DS2: the size that keeps up with the offered rate, for all operators in one step (sections 3 and 4.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, TypeVar

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.propagation import (
    find_bottlenecks,
    limit_targets,
    propagate_targets,
    round_up,
    size_operators,
)
from penstock.dataflow.rates import (
    SATURATED,
    OperatorRates,
    UnevenLoad,
    describe_uneven_loads,
    find_busiest_shares,
    measure_rates,
)
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import (
    ApplicationWindow,
    OperatorQuery,
    OperatorWindow,
    SlotWindow,
)
from penstock.decide.ds2.slots import SharedSlots
from penstock.decide.goals import Goals
from penstock.decide.lost import LostInstances, add_lost
from penstock.decide.policy import ExpectedEffect, Hold, Proposal, Scale
from penstock.decide.readings import (
    find_shared_operator,
    find_unheld_operator,
    find_unread_source,
    mark_unscalable,
)

Number = TypeVar("Number", int, float)

MOST_NAMED = 8
"""A reason names this many operators and counts the rest, so that it stays readable."""

KEEPS_UP = 0.95
"""An operator that takes this share of its target keeps up, as far as the rates of one window can tell."""


@dataclass(frozen=True, slots=True)
class OperatorNeeds:
    """The needs of the operators of one query beside what they hold, keyed by operator."""

    exact: Mapping[str, float]
    wanted: Mapping[str, int]
    held: Mapping[str, int]
    bottlenecks: Mapping[str, float]
    """Unscalable operators that cannot keep up → the share of their target that they can take."""
    capacity: Mapping[str, float]
    """Operators that can be scaled → records per second that what is held can take (equation 5)."""
    hot: tuple[UnevenLoad, ...] = ()
    """Operators that fall short because few of their instances get the work."""


class Ds2Policy:
    """Proposes the least parallelism that sustains the offered rates; on slots it learns costs."""

    name = "ds2"
    memory_kind = "costs"

    def __init__(self, goals: Goals) -> None:
        self._goals = goals
        self._shared_slots = SharedSlots(goals)
        self._lost = LostInstances()

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Propose sizes, by the execution model of the application."""
        if isinstance(window, SlotWindow):
            return self._shared_slots.propose(window)
        living, lost = self._lost.leave_out(window)
        return add_lost(self._propose_per_operator(living), lost)

    def learned(self) -> dict[str, dict[str, Any]]:
        """Return the costs of each query's batches, for a later run."""
        return self._shared_slots.learned()

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up the costs that an earlier run has learned; unreadable ones are named."""
        return self._shared_slots.recall(known)

    def _propose_per_operator(self, window: OperatorWindow) -> Proposal | NotReady:
        if not window.queries:
            return NotReady("no query is active", "a query that reports metrics")
        needs: list[OperatorNeeds] = []
        for query in window.queries:
            need = size_operator_query(query, window.parallelism, self._goals)
            if isinstance(need, NotReady):
                return need
            needs.append(need)
        return find_shared_operator(window) or make_proposal(window, needs)


def size_operator_query(
    query: OperatorQuery, held: Mapping[str, int], goals: Goals
) -> OperatorNeeds | NotReady:
    """Size the operators of one query by equations 1 to 8, with headroom.

    The manager corrects for costs that the instrumentation misses (section 4.2.1).
    """
    graph = mark_unscalable(query.graph, goals.unscalable)
    rates = (
        find_unheld_operator(graph, held)
        or find_unread_source(query)
        or measure_rates(graph, query.metrics, held)
    )
    if isinstance(rates, NotReady):
        return rates
    inflow = find_inflow(query, goals.catch_up)
    demand = propagate_targets(graph, rates, inflow.sources, inflow.beside)
    # records in a topic of its own wait there, and are no reason to feed an operator less
    fed = [target - inflow.beside.get(name, 0.0) for name, target in zip(graph.names, demand, strict=True)]
    bottlenecks = find_bottlenecks(graph, rates, fed)
    targets = limit_targets(graph, demand, bottlenecks) if bottlenecks else demand
    exact = size_operators(graph, rates, targets)
    if not all(map(math.isfinite, exact)):
        return NotReady("the target rates are too large to compute with", "plausible metrics")
    needs = _add_headroom(graph, rates, exact, goals.utilisation, bottlenecks)
    hot = _find_hot_operators(graph, rates, inflow, demand)
    if not hot:
        return needs
    return replace(needs, hot=tuple(describe_uneven_loads(graph, query.metrics, hot).values()))


def _add_headroom(
    graph: LogicalGraph,
    rates: OperatorRates,
    exact: Sequence[float],
    utilisation: float,
    bottlenecks: Mapping[str, float],
) -> OperatorNeeds:
    held, names = rates.instances.tolist(), graph.names
    roomy = [need / utilisation if feeds else need for feeds, need in zip(graph.upstream, exact, strict=True)]
    wanted = [
        round_up(need) if scaled else count
        for need, count, scaled in zip(roomy, held, graph.scaled, strict=True)
    ]
    return OperatorNeeds(
        exact=dict(zip(names, roomy, strict=True)),
        wanted=dict(zip(names, wanted, strict=True)),
        held=dict(zip(names, held, strict=True)),
        bottlenecks=bottlenecks,
        capacity=dict(compress(zip(names, rates.true_processing.tolist(), strict=True), graph.scaled)),
    )


@dataclass(frozen=True, slots=True)
class Inflow:
    """Records per second that sources put out, and that operators take from their own topics beside it.

    `uneven` has the operators with an uneven load and the share of time in which their busiest instance
    works, `limited` those of them that make catching up pointless.
    """

    sources: Mapping[str, float]
    beside: Mapping[str, float] = field(default_factory=dict)
    uneven: Mapping[str, float] = field(default_factory=dict)
    limited: frozenset[str] = frozenset()


def find_inflow(query: OperatorQuery, catch_up_seconds: float) -> Inflow:
    """Add to the offered rates what works off the backlog within the catch-up time.

    An operator that reads a topic of its own catches up with that topic: it needs more, and so does what
    follows it, but not another reader of the same source that keeps up.
    """
    uneven = find_busiest_shares(query.graph, query.metrics)
    extra = {name: topic.overdue_records / catch_up_seconds for name, topic in query.topics.items()}
    if not query.topics:
        extra = {name: source.backlog_records / catch_up_seconds for name, source in query.sources.items()}
    limited = _limit_catch_up(query, extra, uneven) if uneven else frozenset()
    offered = {name: source.offered_per_second for name, source in query.sources.items()}
    if query.topics:
        return Inflow(offered, extra, uneven, limited)
    targets = {name: rate + extra[name] for name, rate in offered.items()}
    return Inflow(targets, uneven=uneven, limited=limited)


def _limit_catch_up(
    query: OperatorQuery, extra: dict[str, float], uneven: Mapping[str, float]
) -> frozenset[str]:
    """Lower what is read beside the offered rates to what the busiest instance on its way has time for.

    The rest would ask for instances that catch nothing up. The operators that limit it are returned.
    """
    limited: set[str] = set()
    for name in [name for name, rate in extra.items() if rate > 0]:
        reading = query.topics.get(name) or query.sources[name]
        for operator in _list_uneven_after(query, name, uneven):
            busiest = uneven[operator]
            most = reading.observed_per_second / (1.0 if busiest >= SATURATED else busiest)
            room = max(0.0, most - reading.offered_per_second)
            if room < extra[name]:
                limited.add(operator)
                extra[name] = room
    return frozenset(limited)


def _list_uneven_after(query: OperatorQuery, name: str, uneven: Mapping[str, float]) -> list[str]:
    """List the operators with an uneven load that hold back what is read here; behind a topic none does."""
    graph = query.graph
    reached = {graph.index[name]} if name in graph.index else set()
    for number, feeds in enumerate(graph.upstream):
        if not reached.isdisjoint(feeds) and graph.names[number] not in query.topics:
            reached.add(number)
    return [operator for operator in uneven if graph.index[operator] in reached]


def _find_hot_operators(
    graph: LogicalGraph, rates: OperatorRates, inflow: Inflow, targets: Sequence[float]
) -> dict[str, float]:
    """Find the operators that miss their target, or do not catch up, because their load is uneven."""
    taken, index = rates.observed_processing, graph.index
    return {
        name: busiest
        for name, busiest in inflow.uneven.items()
        if name in inflow.limited
        or (busiest >= SATURATED and taken[index[name]] < KEEPS_UP * targets[index[name]])
    }


def make_proposal(window: OperatorWindow, needs: list[OperatorNeeds], note: str = "") -> Proposal:
    """Put the needs of all queries into one proposal; `note` is added to its reason."""
    held = _join([need.held for need in needs])
    wanted = _join([need.wanted for need in needs])
    exact = _join([need.exact for need in needs])
    limits = _join([need.bottlenecks for need in needs])
    figures = _figures(window, exact, wanted, limits)
    changes = [f"{name} {held[name]} → {n}" for name, n in wanted.items() if n != held[name]]
    hot = _list_some([str(load) for need in needs for load in need.hot])
    remarks = "; ".join(remark for remark in (note, _bottleneck_text(limits), hot) if remark)
    if not changes:
        return Hold(remarks or "every operator has the instances that it needs", figures)
    reason = f"to keep up with the offered rate: {_list_some(changes)}"
    expected = ExpectedEffect(_expected_text(limits), figures)
    sizes = {name: count for name, count in wanted.items() if name in window.parallelism}
    return Scale(sizes, f"{reason}; {remarks}" if remarks else reason, expected, exact)


def _join(parts: Sequence[Mapping[str, Number]]) -> Mapping[str, Number]:
    """Join the parts of all queries, whose operators have different names; mostly there is one."""
    return parts[0] if len(parts) == 1 else {name: value for part in parts for name, value in part.items()}


def _figures(
    window: OperatorWindow,
    exact: Mapping[str, float],
    wanted: Mapping[str, int],
    limits: Mapping[str, float],
) -> dict[str, float]:
    offered = sum(s.offered_per_second for query in window.queries for s in query.sources.values())
    sources = {name for query in window.queries for name in query.graph.sources}
    loads = [exact[name] / wanted[name] for name in wanted if name not in sources]
    return {
        "offered_per_second": offered,
        "observed_per_second": offered * min(limits.values(), default=1.0),
        "fullest_operator_ratio": max(loads, default=0.0),
        "instances": float(sum(wanted.values())),
    }


def _bottleneck_text(limits: Mapping[str, float]) -> str:
    parts = [f"{name} cannot be scaled and takes {share:.0%} of its target" for name, share in limits.items()]
    return f"bottleneck: {_list_some(parts)}" if parts else ""


def _expected_text(limits: Mapping[str, float]) -> str:
    return (
        "all that the bottleneck can take is read" if limits else "every source is read at its offered rate"
    )


def _list_some(parts: list[str]) -> str:
    shown = ", ".join(parts[:MOST_NAMED])
    return f"{shown} and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else shown
