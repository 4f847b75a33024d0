"""Findings: each cause on the critical path with its evidence, its advice and what that would gain."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.diagnose.causes import (
    CAUSE_OF_PHASE,
    CAUSES,
    WANTS_SLOTS,
    Cause,
    LatencyFinding,
    leave_out_idle,
    rank_findings,
    set_cold_batches_apart,
    share_by_cause,
)
from penstock.diagnose.findings.advice import Advice, advise_on_collection, advise_on_start, advise_on_state
from penstock.diagnose.findings.driver_time import advise_on_scheduling
from penstock.diagnose.findings.idle_time import IdleTime, advise_on_late_executors
from penstock.diagnose.findings.partitions import advise_on_operator
from penstock.diagnose.findings.stragglers import Names
from penstock.diagnose.log.application import ApplicationLog
from penstock.diagnose.path.summary import Summary
from penstock.diagnose.trace.driver_timeline import DRIVER
from penstock.diagnose.trace.from_log import name_operators
from penstock.diagnose.whatif.scenarios import Gain, Rehearsal, without_phase

SMALL_SHARE = 0.05
MOST_FINDINGS = 3
# An operator with less of the time in which tasks run is not asked for its own trouble.
LEAST_OF_RUN, MOST_OPERATORS = 0.1, 6
_STAGE = re.compile(r"^stage \d+: ")


@dataclass(frozen=True, slots=True)
class _View:
    """The material of findings: the summary, the log of its span, and the names of the log's stages."""

    summary: Summary
    log: ApplicationLog | None
    names: Names
    rehearsal: Rehearsal | None
    active_seconds: float


def list_findings(
    summary: Summary,
    log: ApplicationLog | None = None,
    names: Names | None = None,
    rehearsal: Rehearsal | None = None,
    idle: IdleTime | None = None,
) -> list[LatencyFinding]:
    """Return the causes that matter, largest first; `names` are the operators of the log's stages.

    The gain of a task's cause is replayed, if there is a rehearsal; the driver's causes are serial, so their
    gain is their length. Time in which no job ran is left out.
    """
    if log is not None and names is None:
        names = name_operators(log)
    active = summary.length_us / 1e6 * (1 - (idle.share if idle else 0.0))
    view = _View(summary, log, names or {}, rehearsal, active)
    shares = leave_out_idle(share_by_cause(summary), idle)
    if log is not None and rehearsal:
        shares = set_cold_batches_apart(shares, log, active)
    whole = "the critical path while jobs ran" if idle else "the critical path"
    found = [_make_finding(key, share, whole, view) for key, share in shares.items() if share >= SMALL_SHARE]
    if log is not None and rehearsal:
        found = _add_late_executors(found, log, rehearsal, active)
    return rank_findings(found, by_gain=rehearsal is not None)


def _add_late_executors(
    found: list[LatencyFinding], log: ApplicationLog, rehearsal: Rehearsal, active: float
) -> list[LatencyFinding]:
    """Add what it cost that executors came late: tasks that then share few slots hide it on the path."""
    advice = advise_on_late_executors(log, rehearsal)
    gain = rehearsal.measure_gain(advice.change) if advice and advice.change else None
    if not advice or not gain or gain.seconds < SMALL_SHARE * active:
        return found
    share = gain.seconds / max(active, 1e-3)
    sentence = f"{share:.0%} of the time was lost because executors came late. {advice.evidence}"
    late = _tell_finding("executors", share, sentence, advice, gain, active)
    return [*(one for one in found if one.cause != "executors"), late]


def _make_finding(key: str, share: float, whole: str, view: _View) -> LatencyFinding:
    cause = CAUSES[key]
    sentence = f"{share:.0%} of {whole} is {cause.noun}."
    named, advice = _choose_operator(cause, share, view) if key == "run" else ("", _advise(cause, view))
    advice = advice or Advice(key, cause.advice)
    gain = _measure_gain(cause, advice, share, view)
    told = " ".join(filter(None, (sentence, named, advice.evidence)))
    return _tell_finding(key, share, told, advice, gain, view.active_seconds)


def _tell_finding(
    cause: str, share: float, sentence: str, advice: Advice, gain: Gain | None, active: float
) -> LatencyFinding:
    return LatencyFinding(
        cause=cause,
        share=share,
        sentence=sentence,
        advice=advice.text,
        gain_seconds=gain.seconds if gain else None,
        kind=advice.kind,
        gain_share=gain.seconds / max(active, 1e-3) if gain else None,
        uncertainty_seconds=gain.uncertainty if gain else None,
        settings=dict(advice.settings),
    )


def _choose_operator(cause: Cause, share: float, view: _View) -> tuple[str, Advice | None]:
    """Return a sentence on the operator behind most of the task time, and the advice on it.

    Where that one only wants slots, but something is wrong with another, that one is told.
    """
    by_operator = _sum_by_operator(view, share)
    operator, names, named = _name_operator(by_operator, share, view.names)
    if view.log is None or not operator:
        return named, None
    advice = advise_on_operator(view.log, operator, names)
    if not view.rehearsal or not (advice is None or advice.kind in WANTS_SLOTS):
        return named, advice
    largest = sorted(by_operator, key=lambda name: -by_operator[name])[:MOST_OPERATORS]
    others: dict[str, tuple[float, str, Advice]] = {}
    for name in largest:
        other = (
            advise_on_operator(view.log, name, view.names)
            if by_operator[name] >= LEAST_OF_RUN * share
            else None
        )
        if other and other.kind not in WANTS_SLOTS and other.kind not in others:
            gain = _measure_gain(cause, other, share, view)
            others[other.kind] = gain.seconds if gain else 0.0, name, other
    gained, name, other = max(others.values(), key=lambda one: one[0], default=(0.0, "", advice))
    if gained < SMALL_SHARE * view.active_seconds:
        return named, advice
    return f"{named} More can be mended in {name} ({by_operator[name]:.0%}).", other


def _advise(cause: Cause, view: _View) -> Advice | None:
    log = view.log
    if log is None:
        return None
    if cause.key == "scheduling":
        phases = dict.fromkeys(cause.phases, 0.0)
        for work, share in view.summary.work.items():
            if work.phase in phases:
                phases[work.phase] += share
        return advise_on_scheduling(log, phases)
    if cause.key == "executors":
        return advise_on_start(log, cause.advice)
    return _advise_on_phase(cause, log) if cause.scenario else None


def _advise_on_phase(cause: Cause, log: ApplicationLog) -> Advice:
    """Advise on a phase of tasks, which the replay takes out of them."""
    change = without_phase(log, cause.scenario.replace(" ", "_"))
    if cause.key == "gc":
        return advise_on_collection(log, change)
    if cause.key == "state commit":
        return advise_on_state(log, cause.advice, change)
    return Advice(cause.key, cause.advice, change=change)


def _measure_gain(cause: Cause, advice: Advice, share: float, view: _View) -> Gain | None:
    if advice.saves is not None:
        return Gain(advice.saves, 0.1 * advice.saves)
    if cause.is_task_time:
        return view.rehearsal.measure_gain(advice.change) if view.rehearsal and advice.change else None
    if view.log is None or cause.key in {"trigger", "unknown"}:
        return None
    return Gain(share * view.active_seconds, 0.0)


def _sum_by_operator(view: _View, share: float) -> dict[str, float]:
    """Return each operator's part of the share that running tasks have."""
    by_operator: dict[str, float] = {}
    for work, part in view.summary.work.items():
        if work.operator not in {"", DRIVER} and CAUSE_OF_PHASE.get(work.phase, "run") == "run":
            by_operator[work.operator] = by_operator.get(work.operator, 0.0) + part
    scale = share / (sum(by_operator.values()) or 1.0)
    return {name: part * scale for name, part in by_operator.items()}


def _name_operator(by_operator: dict[str, float], share: float, names: Names) -> tuple[str, Names, str]:
    """Return the operator behind most of the task time, the names it is among, and a sentence on it.

    If no operator has most of it, but stages that do the same have, these are taken together.
    """
    if not by_operator:
        return "", names, ""
    operator = max(by_operator, key=lambda name: by_operator[name])
    mine = by_operator[operator]
    if mine >= share / 2:
        return operator, names, f"Most of it ({mine:.0%}) is {operator}."
    alike: dict[str, list[float]] = {}
    for name, part in by_operator.items():
        alike.setdefault(_STAGE.sub("", name), []).append(part)
    what = max(alike, key=lambda name: sum(alike[name]))
    if sum(alike[what]) >= share / 2 and len(alike[what]) > 1:
        short = {stage: _STAGE.sub("", name) for stage, name in names.items()}
        said = f"Most of it ({sum(alike[what]):.0%}) is {what}, in {len(alike[what])} stages."
        return what, short, said
    return operator, names, f"The largest part of it ({mine:.0%}) is {operator}."
