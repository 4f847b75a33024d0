"""DS2: the size that keeps up with the offered rate, for all operators in one step (sections 3 and 4.3)."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, TypeVar

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.propagation import (
    admitted_targets,
    instances_for,
    overloaded_shares,
    shortfall_ratio,
    target_rates,
    whole_number,
)
from penstock.dataflow.rates import OperatorRates, operator_rates
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, Execution, QueryWindow, SourceRate
from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.inflow import inflow
from penstock.decide.policy import ExpectedEffect, Hold, Proposal, Scale
from penstock.decide.readings import shared_operator, tagged, unheld_operator, unread_source
from penstock.decide.shared_slots import SharedSlots

Number = TypeVar("Number", int, float)

MOST_NAMED = 8
"""A reason names this many operators and counts the rest, so that it stays readable."""


@dataclass(frozen=True, slots=True)
class OperatorNeeds:
    """What the operators of one query need, against what they hold; keyed by operator."""

    exact: Mapping[str, float]
    wanted: Mapping[str, int]
    held: Mapping[str, int]
    bottlenecks: Mapping[str, float]
    """Unscalable operators that cannot keep up → the share of their target that they can take."""
    capacity: Mapping[str, float]
    """Operators that can be scaled → records per second that what is held can take (equation 5)."""


class Ds2Policy:
    """Proposes the least parallelism that sustains the offered rates; on shared slots it learns costs."""

    name = "ds2"
    memory_kind = "costs"

    def __init__(self, settings: Ds2Settings) -> None:
        self._settings = settings
        self._shared_slots = SharedSlots(settings)

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Say what size the application should have, by the execution model that it follows."""
        if window.execution is Execution.SHARED_SLOTS:
            return self._shared_slots.propose(window)
        return self._propose_per_operator(window)

    def learned(self) -> dict[str, dict[str, Any]]:
        """The costs of each query's batches, for a later run."""
        return self._shared_slots.learned()

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up the costs that an earlier run has learned."""
        return self._shared_slots.recall(known)

    def _propose_per_operator(self, window: ApplicationWindow) -> Proposal | NotReady:
        if not window.queries:
            return NotReady("no query is active", "a query that reports metrics")
        needs: list[OperatorNeeds] = []
        for query in window.queries:
            need = query_needs(query, window.parallelism, self._settings)
            if isinstance(need, NotReady):
                return need
            needs.append(need)
        return shared_operator(window) or proposal(window, needs)


def query_needs(
    query: QueryWindow, held: Mapping[str, int], settings: Ds2Settings
) -> OperatorNeeds | NotReady:
    """Evaluate equations 1 to 8 for one query and compare with what is held."""
    graph = tagged(query.graph, settings.unscalable)
    rates = unheld_operator(graph, held) or unread_source(query) or operator_rates(graph, query.metrics, held)
    if isinstance(rates, NotReady):
        return rates
    return needs_of_rates(graph, rates, query.sources, settings, query.overdue_records)


def needs_of_rates(
    graph: LogicalGraph,
    rates: OperatorRates,
    sources: Mapping[str, SourceRate],
    settings: Ds2Settings,
    overdue: Mapping[str, float] | None = None,
) -> OperatorNeeds | NotReady:
    """Equations 7 and 8 on rates that are known already, with headroom and correction."""
    wanted_in = inflow(sources, overdue or {}, settings.catch_up_seconds)
    demand = target_rates(graph, rates, wanted_in.sources, wanted_in.beside)
    # what an operator has in a topic of its own waits there, and is no reason to feed it less
    fed = demand - [wanted_in.beside.get(name, 0.0) for name in graph.names] if wanted_in.beside else demand
    bottlenecks = overloaded_shares(graph, rates, fed)
    targets = admitted_targets(graph, demand, bottlenecks) if bottlenecks else demand
    held, rate = rates.instances.tolist(), rates.true_processing.tolist()
    exact, wanted = [], []
    # one by one: for tens of operators, as graphs have, columns cost more than they save
    for number, target in enumerate(targets.tolist()):
        need = instances_for(target, held[number], rate[number]) if graph.upstream[number] else held[number]
        if not need < math.inf:
            return NotReady("the target rates are too large to compute with", "plausible metrics")
        exact.append(need / settings.utilisation if graph.upstream[number] else float(need))
        wanted.append(whole_number(exact[-1]) if graph.scaled[number] else held[number])
    wanted = _corrected(graph, wanted, held, sources, settings.target_rate_ratio)
    names = graph.names
    return OperatorNeeds(
        exact=dict(zip(names, exact, strict=True)),
        wanted=dict(zip(names, wanted, strict=True)),
        held=dict(zip(names, held, strict=True)),
        bottlenecks=bottlenecks,
        capacity=dict(compress(zip(names, rate, strict=True), graph.scaled)),
    )


def _corrected(
    graph: LogicalGraph,
    wanted: list[int],
    held: list[int],
    sources: Mapping[str, SourceRate],
    allowed_ratio: float,
) -> list[int]:
    """Where the model sees no need for more and the sources still fall short, scale by the shortfall."""
    if allowed_ratio <= 1 or any(map(operator.gt, wanted, held)):
        return wanted
    ratio = shortfall_ratio(
        (source.offered_per_second, source.observed_per_second) for source in sources.values()
    )
    if ratio <= allowed_ratio:
        return wanted
    return [whole_number(n * ratio) if scaled else n for n, scaled in zip(wanted, graph.scaled, strict=True)]


def proposal(window: ApplicationWindow, needs: list[OperatorNeeds], note: str = "") -> Proposal:
    """The needs of all queries as one answer; `note` is added to its reason."""
    held = _joined([need.held for need in needs])
    wanted = _joined([need.wanted for need in needs])
    exact = _joined([need.exact for need in needs])
    limits = _joined([need.bottlenecks for need in needs])
    figures = _figures(window, exact, wanted, limits)
    changes = [f"{name} {held[name]} → {n}" for name, n in wanted.items() if n != held[name]]
    remarks = "; ".join(remark for remark in (note, _bottleneck_text(limits)) if remark)
    if not changes:
        return Hold(remarks or "every operator has the instances that it needs", figures)
    reason = f"to keep up with the offered rate: {_listed(changes)}"
    expected = ExpectedEffect(_expected_text(limits), figures)
    sizes = {name: count for name, count in wanted.items() if name in window.parallelism}
    return Scale(sizes, f"{reason}; {remarks}" if remarks else reason, expected, exact)


def _joined(parts: Sequence[Mapping[str, Number]]) -> Mapping[str, Number]:
    """The parts of all queries, whose operators have different names; mostly there is one."""
    return parts[0] if len(parts) == 1 else {name: value for part in parts for name, value in part.items()}


def _figures(
    window: ApplicationWindow,
    exact: Mapping[str, float],
    wanted: Mapping[str, int],
    limits: Mapping[str, float],
) -> dict[str, float]:
    offered = sum(s.offered_per_second for query in window.queries for s in query.outside)
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
    return f"bottleneck: {_listed(parts)}" if parts else ""


def _expected_text(limits: Mapping[str, float]) -> str:
    return (
        "all that the bottleneck can take is read" if limits else "every source is read at its offered rate"
    )


def _listed(parts: list[str]) -> str:
    shown = ", ".join(parts[:MOST_NAMED])
    return f"{shown} and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else shown
