"""The answer in words: what the critical path is made of, what holds stages up, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.diagnose.findings.advice import Advice, advise_on_collection, advise_on_start, advise_on_state
from penstock.diagnose.findings.driver_time import advise_on_scheduling
from penstock.diagnose.findings.failed_work import FailedWork
from penstock.diagnose.findings.idle_time import IdleTime
from penstock.diagnose.findings.partitions import advise_on_operator
from penstock.diagnose.findings.stragglers import Names
from penstock.diagnose.log.application import ApplicationLog
from penstock.diagnose.path.summary import Summary
from penstock.diagnose.trace.driver_timeline import DRIVER
from penstock.diagnose.trace.events import Activity
from penstock.diagnose.trace.from_log import name_operators
from penstock.diagnose.whatif.scenarios import Gain, Rehearsal, without_phase
from penstock.units.figures import seconds

SMALL_SHARE = 0.05
LITTLE_TASK_TIME = 0.3
MOST_FINDINGS = 3
# A gain below this is not worth a line.
LEAST_GAIN_SHARE = 0.01
HAPPEN_ONCE = frozenset({"start-up", "cold batch"})
_STAGE = re.compile(r"^stage \d+: ")


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of time on the critical path: its phases, the advice, and the what-if scenario without it."""

    key: str
    noun: str
    advice: str
    phases: tuple[str, ...]
    is_task_time: bool = False
    scenario: str = ""


@dataclass(frozen=True, slots=True)
class LatencyFinding:
    """A cause with its share of the critical path, in a sentence, with advice and the seconds to gain.

    `kind` tells causes of one phase apart, such as skew and too few partitions. The gain is what following
    the advice would save of the span, give or take `uncertainty_seconds`; `settings` are Spark's.
    """

    cause: str
    share: float
    sentence: str
    advice: str
    gain_seconds: float | None = None
    kind: str = ""
    gain_share: float | None = None
    uncertainty_seconds: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


_CAUSES = (
    Cause("start-up", "the start of the application",
          "Keep the session alive between runs, or start smaller.", ("start-up",)),
    Cause("program", "the program on the driver, outside of any job",
          "Look at the driver's own code: collect, loops over rows, calls to other services.",
          ("program", "result handling")),
    Cause("scheduling", "the driver's scheduling (planning, submission, task launch, barriers)",
          "Plan and launch less: larger queries, no more tasks than keep the slots busy, fewer jobs.",
          ("query planning", "stage submission", "task launch", "stage barrier")),
    Cause("batch log", "the offsets and logs of micro-batches",
          "Put the checkpoint on faster storage, or trigger less often with larger batches.",
          ("offsets", "offset log", "commit log")),
    Cause("source", "asking the source for its newest offsets",
          "Look at the source: the way to its brokers, how many partitions or files it lists, its timeouts.",
          ("source offsets",)),
    Cause("cold batch", "the first batch of a query, which is slow because it is cold",
          "Restart the query less often; later batches do not pay for this.", ("first batch",)),
    Cause("trigger", "waiting for the next trigger",
          "The query keeps up: a shorter trigger interval would lower its latency, fewer slots its cost.",
          ("trigger wait",)),
    Cause("executors", "waiting for executors to start", "Keep a minimum of executors warm.",
          ("executor start",)),
    Cause("run", "running tasks", "More slots help where tasks queue; otherwise look at the operator itself.",
          ("run",), True, "stragglers"),
    Cause("gc", "garbage collection", "Give executors more memory, or hold fewer objects per task.",
          ("gc",), True, "gc"),
    Cause("deserialise", "deserialising tasks and their data",
          "Broadcast large closures, use fewer tasks, keep Python workers alive.",
          ("deserialise",), True, "deserialise"),
    Cause("shuffle write", "writing shuffle output", "Use faster disks, fewer shuffles, or smaller rows.",
          ("shuffle write",), True, "shuffle write"),
    Cause("fetch", "fetching shuffle data",
          "Use fewer or larger shuffle blocks, a faster network, or better locality.",
          ("shuffle fetch", "fetch wait"), True, "fetch wait"),
    Cause("state commit", "committing state stores",
          "Use RocksDB with changelog checkpoints, fewer state partitions, or faster checkpoint storage.",
          ("state commit",), True, "state commit"),
    Cause("state load", "loading state stores",
          "Tasks were moved away from their state, or executors are new: keep tasks where their state is, "
          "and take snapshots more often.",
          ("state load",), True, "state load"),
    Cause("result", "serialising and fetching results",
          "Return less to the driver: aggregate, or write instead.", ("result serialise",), True),
    Cause("failed", "tasks that failed or were killed", "Look at why: their work was for nothing.",
          ("lost",), True),
    Cause("unknown", "time that the trace does not explain", "More detailed traces are needed here.", ()),
)  # fmt: skip
CAUSES = {cause.key: cause for cause in _CAUSES}
_CAUSE_OF_PHASE = {phase: cause.key for cause in _CAUSES for phase in cause.phases}
_CAUSE_OF_MESSAGE = {Activity.CONTROL_MESSAGE.label: "scheduling", Activity.DATA_MESSAGE.label: "fetch"}


def share_by_cause(summary: Summary) -> dict[str, float]:
    """Return the share of each cause in the critical path, largest first."""
    shares: dict[str, float] = {}
    for work, share in summary.work.items():
        cause = _CAUSE_OF_PHASE.get(work.phase, "run" if work.operator else "unknown")
        shares[cause] = shares.get(cause, 0.0) + share
    for label, cause in _CAUSE_OF_MESSAGE.items():
        shares[cause] = shares.get(cause, 0.0) + summary.activity.get(label, 0.0)
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def sum_task_share(summary: Summary) -> float:
    """Return the share of tasks in the critical path; the rest is the driver's, which no slot shortens."""
    return sum(share for key, share in share_by_cause(summary).items() if CAUSES[key].is_task_time)


@dataclass(frozen=True, slots=True)
class _View:
    """What findings are made of: the summary, the log of its span, and the names of the log's stages."""

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
    whole = "the critical path while jobs ran" if idle else "the critical path"
    found = [_make_finding(key, share, whole, view) for key, share in shares.items() if share >= SMALL_SHARE]
    if len(found) > 1 and found[0].cause == "cold batch":
        # a cold start happens once: what the later batches cost comes first
        found[:2] = reversed(found[:2])
    return found


def leave_out_idle(shares: Mapping[str, float], idle: IdleTime | None) -> dict[str, float]:
    """Return the shares of the time in which jobs ran, largest first."""
    left, found = idle.share if idle else 0.0, dict(shares)
    for key in ("program", "start-up"):
        taken = min(left, found.get(key, 0.0))
        if taken:
            found[key] -= taken
            left -= taken
    total = sum(found.values()) or 1.0
    scale = sum(shares.values()) / total if idle else 1.0
    return dict(sorted(((key, share * scale) for key, share in found.items()), key=lambda item: -item[1]))


def _make_finding(key: str, share: float, whole: str, view: _View) -> LatencyFinding:
    cause = CAUSES[key]
    sentence = f"{share:.0%} of {whole} is {cause.noun}."
    operator, names, named = _name_operator(key, share, view)
    advice = _advise(cause, operator, names, view) or Advice(key, cause.advice)
    gain = _measure_gain(cause, advice, share, view)
    return LatencyFinding(
        cause=key,
        share=share,
        sentence=" ".join(filter(None, (sentence, named, advice.evidence))),
        advice=advice.text,
        gain_seconds=gain.seconds if gain else None,
        kind=advice.kind,
        gain_share=gain.seconds / max(view.active_seconds, 1e-3) if gain else None,
        uncertainty_seconds=gain.uncertainty if gain else None,
        settings=dict(advice.settings),
    )


def _advise(cause: Cause, operator: str, names: Names, view: _View) -> Advice | None:
    log = view.log
    if log is None or (cause.key == "run" and not operator):
        return None
    if cause.key == "run":
        return advise_on_operator(log, operator, names)
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
    if cause.is_task_time:
        return view.rehearsal.measure_gain(advice.change) if view.rehearsal and advice.change else None
    if view.log is None or cause.key in {"trigger", "unknown"}:
        return None
    return Gain(share * view.active_seconds, 0.0)


def _name_operator(key: str, share: float, view: _View) -> tuple[str, Names, str]:
    """Return the operator behind most of the task time, the names it is among, and a sentence on it.

    If no operator has most of it, but stages that do the same have, these are taken together.
    """
    by_operator: dict[str, float] = {}
    for work, part in view.summary.work.items():
        if work.operator not in {"", DRIVER} and _CAUSE_OF_PHASE.get(work.phase, "run") == "run":
            by_operator[work.operator] = by_operator.get(work.operator, 0.0) + part
    if key != "run" or not by_operator:
        return "", view.names, ""
    scale = share / sum(by_operator.values())
    operator = max(by_operator, key=lambda name: by_operator[name])
    mine = by_operator[operator] * scale
    if mine >= share / 2:
        return operator, view.names, f"Most of it ({mine:.0%}) is {operator}."
    alike: dict[str, list[float]] = {}
    for name, part in by_operator.items():
        alike.setdefault(_STAGE.sub("", name), []).append(part * scale)
    what = max(alike, key=lambda name: sum(alike[name]))
    if sum(alike[what]) >= share / 2 and len(alike[what]) > 1:
        names = {stage: _STAGE.sub("", name) for stage, name in view.names.items()}
        said = f"Most of it ({sum(alike[what]):.0%}) is {what}, in {len(alike[what])} stages."
        return what, names, said
    return operator, view.names, f"The largest part of it ({mine:.0%}) is {operator}."


def answer_in_words(found: list[LatencyFinding]) -> str:
    """Return the one or two sentences that come first."""
    if not found:
        return "Nothing happened in this span, so there is no critical path."
    task_time = sum(item.share for item in found if CAUSES[item.cause].is_task_time)
    started = sum(item.share for item in found if item.cause in HAPPEN_ONCE)
    answer = found[0].sentence
    if found[0].cause == "start-up" and len(found) > 1:
        # a start happens once: the next cause is the one that stays
        answer += f" After it, {found[1].sentence}"
    answer += "".join(f" {item.sentence}" for item in found[1:] if item.cause == "cold batch")
    if task_time < LITTLE_TASK_TIME * (1 - started):
        answer += " Task time is not your problem; more executors would not help."
    return answer


def answer_in_lines(
    found: list[LatencyFinding],
    failed: FailedWork | None,
    idle: IdleTime | None,
    rehearsal: Rehearsal | None,
) -> str:
    """Return at most five lines: what failed, when no job ran, what held up the rest, what to gain."""
    lines = []
    if failed:
        lines.append(failed.sentence)
    if idle:
        times = f"{seconds(idle.seconds)} of {seconds(idle.of_seconds)}"
        lines.append(f"No job ran in {times}; what follows is about the time in which jobs ran.")
    if found or not lines:
        lines.append(answer_in_words(found))
    if rehearsal and not rehearsal.is_trusted:
        took = f"{seconds(rehearsal.seconds)} instead of {seconds(rehearsal.graph.measured_seconds)}"
        missed = f"{rehearsal.error:.0%} of the time in which jobs ran is missed"
        lines.append(f"A replay of what happened takes {took}: {missed}, so nothing is predicted from it.")
    if failed and failed.jobs:
        # what a run that failed would gain elsewhere is beside the point
        lines.append(f"Mend this first: {failed.advice} {describe_settings(failed.settings)}".rstrip())
        return "\n".join(lines)
    best = max(found, key=lambda one: one.gain_seconds or 0.0, default=None)
    if best and (best.gain_share or 0.0) >= LEAST_GAIN_SHARE:
        lines.append(f"Most would be gained here: {advise(best)}")
    return "\n".join(lines)


def advise(finding: LatencyFinding) -> str:
    """Say what to do about a finding, what to set, and what it is worth."""
    return " ".join(
        filter(None, (finding.advice, describe_settings(finding.settings), describe_gain(finding)))
    )


def describe_settings(settings: Mapping[str, str]) -> str:
    """Say what to set."""
    return f"Set {' and '.join(f'{key}={value}' for key, value in settings.items())}." if settings else ""


def describe_gain(finding: LatencyFinding) -> str:
    """Say how many seconds and which share of the span following the advice is worth."""
    gain, share = finding.gain_seconds or 0.0, finding.gain_share or 0.0
    if share < LEAST_GAIN_SHARE:
        return ""
    unsure = finding.uncertainty_seconds or 0.0
    give_or_take = f" ± {seconds(unsure)}" if unsure else ""
    return f"Worth up to {seconds(gain)}{give_or_take} ({share:.0%})."
