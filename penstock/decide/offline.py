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
from typing import Any

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import Floats
from penstock.dataflow.propagation import exact_parallelism, shortfall_ratio, target_rates, whole_instances
from penstock.dataflow.rates import OperatorRates, unusable_rates
from penstock.dataflow.readiness import NotReady
from penstock.decide.recording import USE_OBSERVED_RATE, RecordedRates, RecordedTopology, split_epochs
from penstock.errors import BadSettings


@dataclass(frozen=True, slots=True)
class OfflineSettings:
    """How recorded epochs are judged.

    `scaling_factor` F adds F times the exact need before rounding up. Where an epoch proposes no
    scale-up and a source's rate exceeds its observed output by more than `target_rate_ratio`, every
    answer is multiplied by the largest such ratio; None leaves that out.
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
        """The fields of the command contract; `not_ready` and `reason` only where there is one."""
        answer: dict[str, Any] = {"exact": dict(self.exact), "parallelism": dict(self.parallelism)}
        told = {"not_ready": self.not_ready, "reason": self.reason}
        return answer | {key: text for key, text in told.items() if text is not None}


@dataclass(frozen=True, slots=True)
class OfflineDecisions:
    """All epochs of a recording in order of time, and what the reader should be told about them."""

    epochs: tuple[EpochDecision, ...]
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object that `penstock decide --json` prints."""
        return {"epochs": [epoch.to_json() for epoch in self.epochs]}


def decide_offline(
    topology: RecordedTopology,
    rows: Iterable[RecordedRates],
    source_rates: Mapping[str, float] | None = None,
    settings: OfflineSettings | None = None,
) -> OfflineDecisions:
    """Decide for every epoch; the last one is left out when not every instance has reported in it."""
    epochs, warnings = whole_epochs(topology, rows)
    settings = settings or OfflineSettings()
    decisions = [_decide_epoch(topology, epoch, source_rates or {}, settings) for epoch in epochs]
    return OfflineDecisions(tuple(decisions), warnings)


def whole_epochs(
    topology: RecordedTopology, rows: Iterable[RecordedRates]
) -> tuple[list[tuple[RecordedRates, ...]], tuple[str, ...]]:
    """The epochs of a recording but for a last one that is incomplete, and what to say of that."""
    epochs, warnings = split_epochs(rows), []
    if epochs and (missing := missing_report(topology, epochs[-1])):
        epochs.pop()
        warnings.append(f"the last epoch is incomplete and was left out: {missing}")
    if not epochs:
        warnings.append("the rates hold no complete epoch")
    return epochs, tuple(warnings)


def missing_report(topology: RecordedTopology, epoch: Sequence[RecordedRates]) -> str | None:
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
    missing = missing_report(topology, epoch)
    if missing:
        return EpochDecision(not_ready=missing)
    rates = recorded_rates(graph, epoch)
    unusable = unusable_rates(graph, rates)
    if unusable:
        return EpochDecision(not_ready=str(unusable))
    sources = source_targets(graph, rates, source_rates)
    if isinstance(sources, NotReady):
        return EpochDecision(not_ready=str(sources))
    return _answer(graph, rates, sources, settings)


def recorded_rates(graph: LogicalGraph, epoch: Sequence[RecordedRates]) -> OperatorRates:
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


def source_targets(
    graph: LogicalGraph, rates: OperatorRates, given: Mapping[str, float]
) -> dict[str, float] | NotReady:
    """The rate of each source; a measured zero would shrink everything after it, so it is not believed."""
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


def _answer(
    graph: LogicalGraph, rates: OperatorRates, sources: Mapping[str, float], settings: OfflineSettings
) -> EpochDecision:
    exact = exact_parallelism(graph, rates, target_rates(graph, rates, sources))
    if not np.isfinite(exact).all():
        return EpochDecision(not_ready="the target rates are too large to compute with")
    wanted = whole_instances(exact * (1 + settings.scaling_factor))
    scaled_up = (graph.is_scalable & (wanted > rates.instances)).any()
    if settings.target_rate_ratio is not None and not scaled_up:
        observed = rates.observed_output
        ratio = shortfall_ratio((rate, float(observed[graph.index[name]])) for name, rate in sources.items())
        wanted = whole_instances(wanted * ratio) if ratio > settings.target_rate_ratio else wanted
    scaled = [(o.name, n) for n, o in enumerate(graph.operators) if not graph.is_source[n]]
    return EpochDecision(
        exact={name: float(exact[number]) for name, number in scaled},
        parallelism={name: int(wanted[number]) for name, number in scaled},
    )
