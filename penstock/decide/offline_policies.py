"""Any policy on recorded rates: each epoch becomes the window that the policy would have seen.

An instance that had the true rate r and the observed rate o was useful for o / r of the epoch. Backlogs are
not recorded, so none is shown; nothing is between the policy and its answer, neither manager nor guardrails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.dataflow.rates import unusable_rates
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, Execution, QueryWindow, SourceRate
from penstock.decide.offline import (
    EpochDecision,
    OfflineDecisions,
    missing_report,
    recorded_rates,
    source_targets,
    whole_epochs,
)
from penstock.decide.policy import Hold, Policy, Scale
from penstock.decide.proposals import need
from penstock.decide.recording import RecordedRates, RecordedTopology

RECORDING = "recording"
NO_BACKLOGS = "backlogs are not recorded: the policy is shown none"
LONE_EPOCH_SECONDS = 1.0
"""How long an epoch is taken to last when no other tells; rates do not depend on it."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The reports of one epoch, and the span of time that they are about."""

    rows: Sequence[RecordedRates]
    start: float
    end: float


def decide_by_policy(
    topology: RecordedTopology,
    rows: Iterable[RecordedRates],
    policy: Policy,
    source_rates: Mapping[str, float] | None = None,
) -> OfflineDecisions:
    """Ask the policy about every epoch in order of time; it may learn from those before."""
    epochs, warnings = whole_epochs(topology, rows)
    decisions = [_decided(topology, epoch, policy, source_rates or {}) for epoch in _timed(epochs)]
    return OfflineDecisions(tuple(decisions), (*warnings, NO_BACKLOGS))


def _timed(epochs: Sequence[tuple[RecordedRates, ...]]) -> list[Epoch]:
    """An epoch lasts from the end of the one before; the first as long as the second."""
    ends = [max(row.timestamp for row in epoch) for epoch in epochs]
    first = ends[1] - ends[0] if len(ends) > 1 and ends[1] > ends[0] else LONE_EPOCH_SECONDS
    bounds = [ends[0] - first, *ends] if ends else []
    # reports that come at the same moment are no span of time
    spans = [(start, end if end > start else start + first) for start, end in pairwise(bounds)]
    return [Epoch(rows, *span) for rows, span in zip(epochs, spans, strict=True)]


def _decided(
    topology: RecordedTopology, epoch: Epoch, policy: Policy, source_rates: Mapping[str, float]
) -> EpochDecision:
    window = epoch_window(topology, epoch, source_rates)
    answer = window if isinstance(window, NotReady) else policy.propose(window)
    if isinstance(window, NotReady) or isinstance(answer, NotReady):
        return EpochDecision(not_ready=str(answer))
    assert isinstance(answer, Hold | Scale), "no policy on operators proposes anything else"
    scaled = [name for name in topology.graph.index if name not in topology.graph.sources]
    sizes, exact = need(answer, window.parallelism), answer.exact if isinstance(answer, Scale) else {}
    return EpochDecision(
        exact={name: float(exact[name]) for name in scaled if name in exact},
        parallelism={name: sizes[name] for name in scaled},
        reason=answer.reason,
    )


def epoch_window(
    topology: RecordedTopology, epoch: Epoch, source_rates: Mapping[str, float]
) -> ApplicationWindow | NotReady:
    """What a policy would have seen of this epoch; NotReady where something is missing or was idle."""
    graph = topology.graph
    if missing := missing_report(topology, epoch.rows):
        return NotReady(missing)
    rates = recorded_rates(graph, epoch.rows)
    targets = unusable_rates(graph, rates) or source_targets(graph, rates, source_rates)
    if isinstance(targets, NotReady):
        return targets
    seen = rates.observed_output
    sources = {name: SourceRate(rate, float(seen[graph.index[name]])) for name, rate in targets.items()}
    metrics = [_instance(graph, row, epoch.end - epoch.start) for row in epoch.rows]
    query = QueryWindow(
        RECORDING, RECORDING, graph, MetricWindow.of(graph, epoch.start, epoch.end, metrics), sources
    )
    held = {row.operator: row.instances for row in epoch.rows}
    return ApplicationWindow(RECORDING, epoch.start, epoch.end, Execution.PER_OPERATOR, held, (query,))


def _instance(graph: LogicalGraph, row: RecordedRates, seconds: float) -> InstanceMetrics:
    """Counts and useful time whose rates are the recorded ones."""
    source = row.operator in graph.sources
    true, observed = (
        (row.true_output, row.observed_output) if source else (row.true_processing, row.observed_processing)
    )
    useful = seconds * observed / true if true > 0 else 0.0
    return InstanceMetrics(
        operator=row.operator,
        instance=row.instance,
        records_in=row.true_processing * useful,
        records_out=row.true_output * useful,
        useful_seconds=useful,
        waiting_seconds=max(0.0, seconds - useful),
    )
