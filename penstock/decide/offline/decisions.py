"""One DS2 decision per epoch of a recording; what `penstock decide` prints.

Equations 7 and 8 on recorded true rates. A source's rate is, in this order: what the file of source
rates gives it, per instance, times the instances it had; its observed output where that file says -1;
its recorded true output where no file speaks of it, as equation 8 has it. A source held back by its
consumers is thus sized for what it could put out, and -1 is for one that paces itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import Floats, InstanceMetrics, MetricWindow
from penstock.dataflow.propagation import correct_shortfall, propagate_targets, round_up, size_operators
from penstock.dataflow.rates import OperatorRates, find_unusable_rate
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import OperatorQuery, OperatorWindow, SourceRate
from penstock.decide.manager.proposals import find_need
from penstock.decide.offline.recording import USE_OBSERVED_RATE, RecordedRates, RecordedTopology, split_epochs
from penstock.decide.policy import Hold, Policy, Scale
from penstock.errors import BadSettings


@dataclass(frozen=True, slots=True)
class OfflineSettings:
    """How recorded epochs are judged.

    `scaling_factor` F adds F times the exact need before rounding up. Where an epoch proposes no
    scale-up and a source's rate exceeds its observed output by more than `target_rate_ratio`, every
    answer is multiplied by the largest such ratio; 1 is the strictest, None leaves that out.
    """

    scaling_factor: float = 0.0
    target_rate_ratio: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scaling_factor) and self.scaling_factor >= 0):
            raise BadSettings(f"scaling-factor is {self.scaling_factor}, it must be 0 or more")
        # NaN is not >= 1 either
        if self.target_rate_ratio is not None and not self.target_rate_ratio >= 1:
            raise BadSettings(f"target-rate-ratio is {self.target_rate_ratio}, it must be 1 or more")


@dataclass(frozen=True, slots=True)
class EpochDecision:
    """The answer for one epoch, keyed by operator; sources are not scaled and not listed."""

    exact: Mapping[str, float] = field(default_factory=dict)
    parallelism: Mapping[str, int] = field(default_factory=dict)
    not_ready: str | None = None
    reason: str | None = None
    """Why, in the words of the policy; DS2's equations have no more to say than their result."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the command contract; `not_ready` and `reason` only if there is one."""
        answer: dict[str, Any] = {"exact": dict(self.exact), "parallelism": dict(self.parallelism)}
        told = {"not_ready": self.not_ready, "reason": self.reason}
        return answer | {key: text for key, text in told.items() if text is not None}


@dataclass(frozen=True, slots=True)
class OfflineDecisions:
    """All epochs of a recording in order of time, and what the reader should be told about them."""

    epochs: tuple[EpochDecision, ...]
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object that `penstock decide --json` prints."""
        return {"epochs": [epoch.to_json() for epoch in self.epochs]}


def decide_offline(
    topology: RecordedTopology,
    rows: Iterable[RecordedRates],
    source_rates: Mapping[str, float] | None = None,
    settings: OfflineSettings | None = None,
) -> OfflineDecisions:
    """Decide for every epoch; the last one is left out when not every instance has reported in it."""
    epochs, warnings = take_whole_epochs(topology, rows)
    settings = settings or OfflineSettings()
    decisions = [_decide_epoch(topology, epoch, source_rates or {}, settings) for epoch in epochs]
    return OfflineDecisions(tuple(decisions), warnings)


def take_whole_epochs(
    topology: RecordedTopology, rows: Iterable[RecordedRates]
) -> tuple[list[tuple[RecordedRates, ...]], tuple[str, ...]]:
    """Split a recording into epochs, without an incomplete last one; warnings say so."""
    epochs, warnings = split_epochs(rows), []
    if epochs and (missing := find_missing_report(topology, epochs[-1])):
        epochs.pop()
        warnings.append(f"the last epoch is incomplete and was left out: {missing}")
    if not epochs:
        warnings.append("the rates hold no complete epoch")
    return epochs, tuple(warnings)


def find_missing_report(topology: RecordedTopology, epoch: Sequence[RecordedRates]) -> str | None:
    """Say which operator has not reported once for each instance.

    The rows say how many instances there were in their epoch; the topology counts only for an operator
    without a row.
    """
    stated: dict[str, list[int]] = {name: [] for name in topology.instances}
    for row in epoch:
        stated[row.operator].append(row.instances)
    for name, counts in stated.items():
        wanted = max(counts, default=topology.instances[name])
        if len(set(counts)) > 1:
            return f"{name!r} changed its number of instances within the epoch"
        if len(counts) != wanted:
            return f"{len(counts)} instances of {name!r} reported, {wanted} are expected"
    return None


def _decide_epoch(
    topology: RecordedTopology,
    epoch: Sequence[RecordedRates],
    source_rates: Mapping[str, float],
    settings: OfflineSettings,
) -> EpochDecision:
    graph = topology.graph
    missing = find_missing_report(topology, epoch)
    if missing:
        return EpochDecision(not_ready=missing)
    rates = average_rates(graph, epoch)
    unusable = find_unusable_rate(graph, rates)
    if unusable:
        return EpochDecision(not_ready=str(unusable))
    sources = find_source_targets(graph, rates, source_rates)
    if isinstance(sources, NotReady):
        return EpochDecision(not_ready=str(sources))
    return _size_epoch(graph, rates, sources, settings)


def average_rates(graph: LogicalGraph, epoch: Sequence[RecordedRates]) -> OperatorRates:
    """Sum over instances (equations 5 and 6); a recorded rate of zero counts as zero."""
    operator = np.array([graph.index[row.operator] for row in epoch], dtype=np.int64)
    size = len(graph.operators)

    def total(values: Iterable[float]) -> Floats:
        column = np.fromiter(values, np.float64)
        return np.bincount(operator, weights=column, minlength=size).astype(np.float64)

    return OperatorRates(
        instances=np.bincount(operator, minlength=size),
        true_processing=total(row.true_processing for row in epoch),
        true_output=total(row.true_output for row in epoch),
        observed_processing=total(row.observed_processing for row in epoch),
        observed_output=total(row.observed_output for row in epoch),
    )


def find_source_targets(
    graph: LogicalGraph, rates: OperatorRates, given: Mapping[str, float]
) -> dict[str, float] | NotReady:
    """Return the rate of each source. Reject a measured zero: it would shrink everything after it."""
    targets: dict[str, float] = {}
    for name in graph.sources:
        number, per_instance = graph.index[name], given.get(name)
        if per_instance is not None and per_instance != USE_OBSERVED_RATE:
            targets[name] = per_instance * int(rates.instances[number])
            continue
        measured = rates.true_output if per_instance is None else rates.observed_output
        targets[name] = float(measured[number])
        if targets[name] == 0:
            return NotReady(f"source {name!r} was idle: it put out no records")
    return targets


def _size_epoch(
    graph: LogicalGraph, rates: OperatorRates, sources: Mapping[str, float], settings: OfflineSettings
) -> EpochDecision:
    exact = size_operators(graph, rates, propagate_targets(graph, rates, sources))
    if not all(map(math.isfinite, exact)):
        return EpochDecision(not_ready="the target rates are too large to compute with")
    held, seen = rates.instances.tolist(), rates.observed_output.tolist()
    wanted = [
        round_up(need * (1 + settings.scaling_factor)) if scaled else count
        for need, count, scaled in zip(exact, held, graph.scaled, strict=True)
    ]
    if settings.target_rate_ratio is not None:
        inputs = [(rate, seen[graph.index[name]]) for name, rate in sources.items()]
        wanted = correct_shortfall(graph, wanted, held, inputs, settings.target_rate_ratio)
    return EpochDecision(
        exact={name: exact[graph.index[name]] for name in graph.fed},
        parallelism={name: wanted[graph.index[name]] for name in graph.fed},
    )


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
    epochs, warnings = take_whole_epochs(topology, rows)
    decisions = [_ask_policy(topology, epoch, policy, source_rates or {}) for epoch in _time_epochs(epochs)]
    return OfflineDecisions(tuple(decisions), (*warnings, NO_BACKLOGS))


def _time_epochs(epochs: Sequence[tuple[RecordedRates, ...]]) -> list[Epoch]:
    """Time the epochs: each lasts from the end of the one before, the first as long as the second."""
    ends = [max(row.timestamp for row in epoch) for epoch in epochs]
    first = ends[1] - ends[0] if len(ends) > 1 and ends[1] > ends[0] else LONE_EPOCH_SECONDS
    bounds = [ends[0] - first, *ends] if ends else []
    # reports that come at the same moment are no span of time
    spans = [(start, end if end > start else start + first) for start, end in pairwise(bounds)]
    return [Epoch(rows, *span) for rows, span in zip(epochs, spans, strict=True)]


def _ask_policy(
    topology: RecordedTopology, epoch: Epoch, policy: Policy, source_rates: Mapping[str, float]
) -> EpochDecision:
    window = make_epoch_window(topology, epoch, source_rates)
    answer = window if isinstance(window, NotReady) else policy.propose(window)
    if isinstance(window, NotReady) or isinstance(answer, NotReady):
        return EpochDecision(not_ready=str(answer))
    assert isinstance(answer, Hold | Scale), "no policy on operators proposes anything else"
    scaled = [name for name in topology.graph.index if name not in topology.graph.sources]
    sizes, exact = find_need(answer, window.parallelism), answer.exact if isinstance(answer, Scale) else {}
    return EpochDecision(
        exact={name: float(exact[name]) for name in scaled if name in exact},
        parallelism={name: sizes[name] for name in scaled},
        reason=answer.reason,
    )


def make_epoch_window(
    topology: RecordedTopology, epoch: Epoch, source_rates: Mapping[str, float]
) -> OperatorWindow | NotReady:
    """Make the window that a policy would have seen; NotReady if something is missing or was idle."""
    graph = topology.graph
    if missing := find_missing_report(topology, epoch.rows):
        return NotReady(missing)
    rates = average_rates(graph, epoch.rows)
    targets = find_unusable_rate(graph, rates) or find_source_targets(graph, rates, source_rates)
    if isinstance(targets, NotReady):
        return targets
    seen = rates.observed_output
    sources = {name: SourceRate(rate, float(seen[graph.index[name]])) for name, rate in targets.items()}
    metrics = [_measure_instance(graph, row, epoch.end - epoch.start) for row in epoch.rows]
    seen_of = MetricWindow.of(graph, epoch.start, epoch.end, metrics)
    query = OperatorQuery(RECORDING, RECORDING, graph, sources, seen_of)
    held = {row.operator: row.instances for row in epoch.rows}
    return OperatorWindow(RECORDING, epoch.start, epoch.end, held, (query,))


def _measure_instance(graph: LogicalGraph, row: RecordedRates, seconds: float) -> InstanceMetrics:
    """Make up counts and useful time whose rates are the recorded ones."""
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
