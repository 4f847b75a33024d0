"""DS2: the size that keeps up with the offered rate, for all operators in one step (sections 3 and 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import Integers
from penstock.dataflow.propagation import (
    admitted_targets,
    exact_parallelism,
    overloaded_shares,
    shortfall_ratio,
    target_rates,
    whole_instances,
)
from penstock.dataflow.rates import OperatorRates, operator_rates
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, Execution, QueryWindow
from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.policy import ExpectedEffect, Hold, Proposal, Scale
from penstock.decide.readings import shared_operator, tagged, unheld_operator, unread_source
from penstock.decide.shared_slots import SharedSlots

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


class Ds2Policy:
    """Proposes the least parallelism that sustains the offered rates; keeps no state of its own."""

    name = "ds2"

    def __init__(self, settings: Ds2Settings) -> None:
        self._settings = settings
        self._shared_slots = SharedSlots(settings)

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Say what size the application should have, by the execution model that it follows."""
        if window.execution is Execution.SHARED_SLOTS:
            return self._shared_slots.propose(window)
        return self._propose_per_operator(window)

    def _propose_per_operator(self, window: ApplicationWindow) -> Proposal | NotReady:
        if not window.queries:
            return NotReady("no query is active", "a query that reports metrics")
        needs: list[OperatorNeeds] = []
        for query in window.queries:
            need = query_needs(query, window.parallelism, self._settings)
            if isinstance(need, NotReady):
                return need
            needs.append(need)
        return shared_operator(window) or _proposal(window, needs)


def query_needs(
    query: QueryWindow, held: Mapping[str, int], settings: Ds2Settings
) -> OperatorNeeds | NotReady:
    """Evaluate equations 1 to 8 for one query and compare with what is held."""
    graph = tagged(query.graph, settings.unscalable)
    rates = unheld_operator(graph, held) or unread_source(query) or operator_rates(graph, query.metrics, held)
    if isinstance(rates, NotReady):
        return rates
    return _needs(graph, rates, query, settings)


def _needs(
    graph: LogicalGraph, rates: OperatorRates, query: QueryWindow, settings: Ds2Settings
) -> OperatorNeeds | NotReady:
    demand = target_rates(graph, rates, _wanted_source_rates(query, settings.catch_up_seconds))
    bottlenecks = overloaded_shares(graph, rates, demand)
    targets = admitted_targets(graph, demand, bottlenecks) if bottlenecks else demand
    exact = exact_parallelism(graph, rates, targets)
    if not np.isfinite(exact).all():
        return NotReady("the target rates are too large to compute with", "plausible metrics")
    exact = np.where(graph.is_source, exact, exact / settings.utilisation)
    wanted = np.where(graph.is_scalable, whole_instances(exact), rates.instances)
    wanted = _corrected(graph, wanted, rates.instances, query, settings.target_rate_ratio)
    names = [operator.name for operator in graph.operators]
    return OperatorNeeds(
        exact=dict(zip(names, exact.tolist(), strict=True)),
        wanted=dict(zip(names, wanted.tolist(), strict=True)),
        held=dict(zip(names, rates.instances.tolist(), strict=True)),
        bottlenecks=bottlenecks,
    )


def _corrected(
    graph: LogicalGraph, wanted: Integers, held: Integers, query: QueryWindow, allowed_ratio: float
) -> Integers:
    """Where the model sees no need for more and the sources still fall short, scale by the shortfall."""
    if allowed_ratio <= 1 or (wanted > held).any():
        return wanted
    pairs = [(source.offered_per_second, source.observed_per_second) for source in query.sources.values()]
    ratio = shortfall_ratio(pairs)
    return np.where(graph.is_scalable & (ratio > allowed_ratio), whole_instances(wanted * ratio), wanted)


def _wanted_source_rates(query: QueryWindow, catch_up_seconds: float) -> dict[str, float]:
    """What arrives, plus what reads the backlog within the catch-up time."""
    return {
        name: source.offered_per_second + source.backlog_records / catch_up_seconds
        for name, source in query.sources.items()
    }


def _proposal(window: ApplicationWindow, needs: list[OperatorNeeds]) -> Proposal:
    held = {name: count for need in needs for name, count in need.held.items()}
    wanted = {name: count for need in needs for name, count in need.wanted.items()}
    exact = {name: value for need in needs for name, value in need.exact.items()}
    limits = {name: share for need in needs for name, share in need.bottlenecks.items()}
    figures = _figures(window, exact, wanted, limits)
    changes = [f"{name} {held[name]} → {n}" for name, n in wanted.items() if n != held[name]]
    bottleneck = _bottleneck_text(limits)
    if not changes:
        return Hold(bottleneck or "every operator has the instances that it needs", figures)
    reason = f"to keep up with the offered rate: {_listed(changes)}"
    expected = ExpectedEffect(_expected_text(limits), figures)
    sizes = {name: count for name, count in wanted.items() if name in window.parallelism}
    return Scale(sizes, f"{reason}; {bottleneck}" if bottleneck else reason, expected, exact)


def _figures(
    window: ApplicationWindow,
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
    return f"bottleneck: {_listed(parts)}" if parts else ""


def _expected_text(limits: Mapping[str, float]) -> str:
    return (
        "all that the bottleneck can take is read" if limits else "every source is read at its offered rate"
    )


def _listed(parts: list[str]) -> str:
    shown = ", ".join(parts[:MOST_NAMED])
    return f"{shown} and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else shown
