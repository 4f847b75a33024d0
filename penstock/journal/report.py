"""The report on one application over a span, from its journal: what it held, how it kept up, its changes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.dataflow.summary import QuerySummary, is_behind
from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.decide.verdict import strip_figures
from penstock.diagnose.causes import CAUSES
from penstock.journal.records import ActionRecord, DecisionRecord, ObservationRecord
from penstock.journal.terms import Terms

HOUR, GIGABYTE = 3600.0, 1e9
LEAST_SHARE = 0.1
"""Of the time: what takes less is not worth a change to the job."""
MOST_ADVICE = 3


@dataclass(frozen=True, slots=True)
class Holding:
    """The size held over the observed time, and the peak size over the same time."""

    hours: float
    core_hours: float
    peak_cores: float
    gb_hours: float | None
    peak_gb: float | None

    @property
    def peak_core_hours(self) -> float:
        """Core-hours, had the peak been held all the time."""
        return self.peak_cores * self.hours

    @property
    def peak_gb_hours(self) -> float | None:
        """Gigabyte-hours, had the peak been held all the time."""
        return None if self.peak_gb is None else self.peak_gb * self.hours

    @property
    def saved_share(self) -> float:
        """The share of the peak's core-hours that was not held."""
        return 1 - self.core_hours / self.peak_core_hours if self.peak_core_hours else 0.0


@dataclass(frozen=True, slots=True)
class HoldingCost:
    """The size held and the peak, in money; memory is in it where its price and its size are known."""

    held: float
    peak: float
    with_memory: bool


@dataclass(frozen=True, slots=True)
class QueryKept:
    """How one query kept up, by shares of the observed time; None where nothing was measured."""

    name: str
    hours: float
    kept_up_share: float
    batch_seconds: tuple[float, float] | None
    """The median, and the 95th percentile."""
    latency_seconds: tuple[float, float] | None
    within_target_share: float | None
    largest_backlog_records: float


@dataclass(frozen=True, slots=True)
class ReportAdvice:
    """One thing to change in the job or its settings, and what speaks for it."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class ApplicationReport:
    """The whole report, from `since` to `until`; observations may reach back less far."""

    name: str
    since: float
    until: float
    runs: tuple[str, ...]
    observed_from: float | None
    holding: Holding
    cost: HoldingCost | None
    queries: tuple[QueryKept, ...]
    decisions: Mapping[str, int]
    actions: tuple[ActionRecord, ...]
    advice: tuple[ReportAdvice, ...]
    latency_target: float | None = None
    observations: tuple[ObservationRecord, ...] = field(default=(), repr=False)


def make_report(
    name: str,
    since: float,
    until: float,
    observations: Sequence[ObservationRecord],
    decisions: Sequence[DecisionRecord],
    actions: Sequence[ActionRecord],
    terms: Mapping[str, Terms],
) -> ApplicationReport:
    """Sum up what the journal has of an application; prices and targets are those of its newest run."""
    newest = list(terms.values())[-1] if terms else Terms()
    holding = sum_holding(observations, terms)
    runs = dict.fromkeys([one.application for one in observations] + [one.application for one in actions])
    return ApplicationReport(
        name=name,
        since=since,
        until=until,
        runs=tuple(runs),
        observed_from=min((one.start for one in observations), default=None),
        holding=holding,
        cost=price_holding(holding, newest),
        queries=judge_queries(observations, newest.latency_target),
        decisions=count_decisions(decisions),
        actions=tuple(actions),
        advice=tuple(find_advice(observations, decisions, actions, terms)),
        latency_target=newest.latency_target,
        observations=tuple(observations),
    )


def sum_holding(observations: Iterable[ObservationRecord], terms: Mapping[str, Terms]) -> Holding:
    """Sum cores and memory over the windows; where one run's memory is not known, none is told."""
    seconds = core_seconds = gb_seconds = peak_cores = peak_gb = 0.0
    known = True
    for one in observations:
        run, lasted = terms.get(one.application, Terms()), _seconds(one)
        cores = float(one.slots * run.task_cpus)
        seconds, core_seconds = seconds + lasted, core_seconds + cores * lasted
        peak_cores = max(peak_cores, cores)
        executors = one.parallelism.get(EXECUTORS)
        if run.executor_memory_bytes is None or executors is None:
            known = False
            continue
        gigabytes = executors * run.executor_memory_bytes / GIGABYTE
        gb_seconds, peak_gb = gb_seconds + gigabytes * lasted, max(peak_gb, gigabytes)
    memory = (gb_seconds / HOUR, peak_gb) if known and seconds else (None, None)
    return Holding(seconds / HOUR, core_seconds / HOUR, peak_cores, *memory)


def hold_usage(usage: Mapping[str, float], terms: Terms, against: str = "peak") -> Holding:
    """Return what a status or a run says was held so far, against its size at `peak` or at `start`."""
    hours, cpus = usage["seconds"] / HOUR, terms.task_cpus
    cores = usage["slot_seconds"] / HOUR * cpus, float(usage[f"slots_at_{against}"] * cpus)
    if terms.executor_memory_bytes is None or not usage.get("executor_seconds"):
        return Holding(hours, *cores, None, None)
    each = terms.executor_memory_bytes / GIGABYTE
    memory = usage["executor_seconds"] / HOUR * each, usage[f"executors_at_{against}"] * each
    return Holding(hours, *cores, *memory)


def price_holding(holding: Holding, terms: Terms) -> HoldingCost | None:
    """Return what was held and the peak in money; None without a price."""
    if not terms.has_price:
        return None
    per_core, per_gb = terms.price_per_core_hour, terms.price_per_gb_hour
    with_memory = per_gb is not None and holding.gb_hours is not None
    held, peak = (per_core or 0.0) * holding.core_hours, (per_core or 0.0) * holding.peak_core_hours
    if with_memory:
        held += (per_gb or 0.0) * (holding.gb_hours or 0.0)
        peak += (per_gb or 0.0) * (holding.peak_gb_hours or 0.0)
    return HoldingCost(held, peak, with_memory)


def judge_queries(observations: Iterable[ObservationRecord], target: float | None) -> tuple[QueryKept, ...]:
    """Say how each query kept up, in the order in which they were first seen."""
    seen: dict[str, list[tuple[QuerySummary, float]]] = defaultdict(list)
    for one in observations:
        for query in one.queries:
            seen[query.name].append((query, _seconds(one)))
    return tuple(_judge_query(name, windows, target) for name, windows in seen.items())


def _judge_query(name: str, windows: Sequence[tuple[QuerySummary, float]], target: float | None) -> QueryKept:
    whole = sum(lasted for _, lasted in windows)
    latencies = [(one.latency_seconds, w) for one, w in windows if one.latency_seconds is not None]
    batches = [(one.batch_seconds, w) for one, w in windows if one.batch_seconds is not None]
    backlogs = [one.backlog_records for one, _ in windows if math.isfinite(one.backlog_records)]
    within = None
    if target is not None and latencies:
        within = _share((latency <= target, lasted) for latency, lasted in latencies)
    return QueryKept(
        name=name,
        hours=whole / HOUR,
        kept_up_share=_share((not is_behind(one), lasted) for one, lasted in windows),
        batch_seconds=_median_and_tail(batches),
        latency_seconds=_median_and_tail(latencies),
        within_target_share=within,
        largest_backlog_records=max(backlogs, default=0.0),
    )


def count_decisions(decisions: Iterable[DecisionRecord]) -> dict[str, int]:
    """Count decisions by their kind, and rejections by the guardrail, the most frequent first."""
    counts: dict[str, int] = defaultdict(int)
    for one in decisions:
        guardrail = one.verdict.get("guardrail")
        counts[f"rejected: {guardrail}" if guardrail else one.kind] += one.count
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def find_advice(
    observations: Sequence[ObservationRecord],
    decisions: Sequence[DecisionRecord],
    actions: Sequence[ActionRecord],
    terms: Mapping[str, Terms],
) -> list[ReportAdvice]:
    """Say what to change in the job: what its batches waited for, what stood in the way, what went wrong."""
    found = list(_advise_on_causes(observations))
    whole = sum(map(_seconds, observations)) or 1.0
    at_most = sum(_seconds(one) for one in observations if _is_at_maximum(one, terms))
    if at_most / whole >= LEAST_SHARE:
        why = f"it held as many executors as allowed for {at_most / whole:.0%} of the time"
        found.append(ReportAdvice("Raise max_executors, or make batches cheaper.", why))
    held_up = sum(one.count for one in decisions if one.verdict.get("guardrail") == "critical-path")
    if held_up:
        why = f"growth was rejected {held_up} times, since more executors would not have shortened a batch"
        found.append(ReportAdvice("Look at what holds a batch up: the driver, or one task.", why))
    short = [one for one in actions if one.status in (Status.PARTIAL, Status.FAILED)]
    if short:
        why = f"{len(short)} of {len(actions)} changes did not bring what was asked for: {short[-1].detail}"
        found.append(ReportAdvice("See that the cluster has room, and why changes fail.", why))
    return [*found, *_advise_on_warnings(observations)]


def _advise_on_causes(observations: Iterable[ObservationRecord]) -> Iterable[ReportAdvice]:
    """Advise on the largest causes on the critical path of the batches that were analysed, each once."""
    batches = {
        (one.application, query.name, query.critical.get("batch_id")): query.critical
        for one in observations
        for query in one.queries
        if query.critical.get("causes")
    }
    total, shares = 0.0, defaultdict[str, float](float)
    for batch in batches.values():
        seconds, causes = batch.get("seconds"), batch["causes"]
        lasted = float(seconds) if isinstance(seconds, int | float) else 0.0
        total += lasted
        for cause, share in causes.items() if isinstance(causes, Mapping) else ():
            shares[cause] += lasted * float(share)
    largest = sorted(shares.items(), key=lambda item: -item[1])[:MOST_ADVICE]
    for cause, seconds in largest:
        if cause in CAUSES and total and seconds / total >= LEAST_SHARE and cause != "unknown":
            known = CAUSES[cause]
            counted = f"{seconds / total:.0%} of the critical path of {len(batches):,} batches"
            yield ReportAdvice(known.advice, f"{counted} is {known.noun}")


def _advise_on_warnings(observations: Sequence[ObservationRecord]) -> Iterable[ReportAdvice]:
    """Pass on the warnings that were told most often; those that differ in figures alone are one."""
    counts: dict[str, int] = defaultdict(int)
    newest: dict[str, str] = {}
    for one in observations:
        for warning in one.warnings:
            counts[strip_figures(warning)] += 1
            newest[strip_figures(warning)] = warning
    for key, count in sorted(counts.items(), key=lambda item: -item[1])[:MOST_ADVICE]:
        if count / len(observations) >= LEAST_SHARE:
            yield ReportAdvice(newest[key], f"told in {count:,} of {len(observations):,} windows")


def _is_at_maximum(one: ObservationRecord, terms: Mapping[str, Terms]) -> bool:
    most, held = terms.get(one.application, Terms()).max_executors, one.parallelism.get(EXECUTORS)
    return most is not None and held is not None and held >= most


def _seconds(one: ObservationRecord) -> float:
    return max(0.0, one.at - one.start)


def _share(weighted: Iterable[tuple[bool, float]]) -> float:
    told = list(weighted)
    whole = sum(weight for _, weight in told)
    return sum(weight for holds, weight in told if holds) / whole if whole else 0.0


def _median_and_tail(weighted: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return the values that are not exceeded in half and in 95 percent of the time."""
    if not weighted:
        return None
    values, weights = (np.array(column, dtype=np.float64) for column in zip(*weighted, strict=True))
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    places = [
        min(int(np.searchsorted(reached, share * reached[-1])), len(values) - 1) for share in (0.5, 0.95)
    ]
    median, tail = (float(values[order][place]) for place in places)
    return median, tail
