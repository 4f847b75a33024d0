"""The answer in plain words: what the critical path is made of, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from penstock.diagnose.application_log import SUCCEEDED, ApplicationLog, StageKey
from penstock.diagnose.driver_timeline import DRIVER
from penstock.diagnose.operators import operator_names
from penstock.diagnose.summary import Summary
from penstock.diagnose.trace import Activity
from penstock.diagnose.what_if import WhatIf

# A task of this many times the median of its stage is called a straggler; less is enough when it is longer
# because it has more to do.
SKEW_RATIO = 2.0
LONGER = 1.25
HOLDS_UP = 0.5
SMALL_SHARE = 0.05
LITTLE_TASK_TIME = 0.3

Names = Mapping[StageKey, str]
_STAGE = re.compile(r"^stage \d+: ")


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that time on the critical path goes to, with the advice for it."""

    key: str
    noun: str
    advice: str
    is_task_time: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause with its share of the critical path, in a sentence, what to do, and what that could gain."""

    cause: str
    share: float
    sentence: str
    advice: str
    gain_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Straggler:
    """The longest task of a stage, where it is far longer than the others."""

    operator: str
    ratio: float
    seconds: float
    executor: str
    partition: int
    records_ratio: float


_CAUSES = (
    Cause(
        "start-up", "the start of the application", "Keep the session alive between runs, or start smaller."
    ),
    Cause(
        "program",
        "the program on the driver, outside of any job",
        "Look at the driver's own code: collect, loops over rows, calls to other services.",
    ),
    Cause(
        "scheduling",
        "the driver's scheduling (planning, submission, task launch, barriers)",
        "Use fewer and larger tasks, coalesce partitions, cache plans, or give the driver more cores.",
    ),
    Cause(
        "batch log",
        "offsets and logs of the micro-batch",
        "Put the checkpoint on faster storage, or trigger less often with larger batches.",
    ),
    Cause(
        "trigger",
        "waiting for the next trigger",
        "The query keeps up: a shorter trigger interval would lower its latency, fewer slots its cost.",
    ),
    Cause("executors", "waiting for executors to start", "Keep a minimum of executors warm."),
    Cause(
        "run",
        "the run of tasks",
        "More slots help where tasks queue; otherwise look at the operator itself.",
        True,
    ),
    Cause("gc", "garbage collection", "Give executors more memory, or hold fewer objects per task.", True),
    Cause(
        "deserialise",
        "deserialising tasks and their data",
        "Broadcast large closures, use fewer tasks, keep Python workers alive.",
        True,
    ),
    Cause("shuffle write", "writing shuffle output", "Faster disks, fewer shuffles, or smaller rows.", True),
    Cause(
        "fetch",
        "fetching shuffle data",
        "Fewer or larger shuffle blocks, more network, or better locality.",
        True,
    ),
    Cause(
        "state commit",
        "committing state stores",
        "Use RocksDB with changelog checkpoints, fewer state partitions, or faster checkpoint storage.",
        True,
    ),
    Cause(
        "state load",
        "loading state stores",
        "Tasks were moved away from their state, or executors are new: keep tasks where their state is, and "
        "take snapshots more often.",
        True,
    ),
    Cause(
        "result",
        "serialising and fetching results",
        "Return less to the driver: aggregate, or write instead.",
        True,
    ),
    Cause("unknown", "time that the trace does not explain", "More detailed traces are needed here."),
)
CAUSES = {cause.key: cause for cause in _CAUSES}
_PHASES = {
    "start-up": "start-up",
    "program": "program",
    "result handling": "program",
    "query planning": "scheduling",
    "stage submission": "scheduling",
    "task launch": "scheduling",
    "stage barrier": "scheduling",
    "offsets": "batch log",
    "offset log": "batch log",
    "commit log": "batch log",
    "trigger wait": "trigger",
    "executor start": "executors",
    "run": "run",
    "gc": "gc",
    "deserialise": "deserialise",
    "shuffle write": "shuffle write",
    "shuffle fetch": "fetch",
    "fetch wait": "fetch",
    "state commit": "state commit",
    "state load": "state load",
    "result serialise": "result",
    "lost": "unknown",
}
# The replay that takes a cause away; of the run of tasks only stragglers can be taken away.
_REPLAYED = {
    "run": "stragglers",
    "gc": "gc",
    "deserialise": "deserialise",
    "fetch": "fetch wait",
    "shuffle write": "shuffle write",
    "state commit": "state commit",
    "state load": "state load",
}
_MESSAGES = {Activity.CONTROL_MESSAGE.label: "scheduling", Activity.DATA_MESSAGE.label: "fetch"}


def cause_shares(summary: Summary) -> dict[str, float]:
    """The critical path by cause, largest first; what no phase names goes by its activity."""
    shares: dict[str, float] = {}
    for work, share in summary.work.items():
        cause = _PHASES.get(work.phase, "run" if work.operator else "unknown")
        shares[cause] = shares.get(cause, 0.0) + share
    for label, cause in _MESSAGES.items():
        shares[cause] = shares.get(cause, 0.0) + summary.activity.get(label, 0.0)
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def task_share(summary: Summary) -> float:
    """What tasks have of the critical path; the rest is the driver's, and no slot shortens it."""
    return sum(share for key, share in cause_shares(summary).items() if CAUSES[key].is_task_time)


def findings(
    summary: Summary, log: ApplicationLog | None = None, names: Names | None = None
) -> list[Finding]:
    """What matters on the critical path, most important first; `names` tells the log's operators."""
    if log is not None and names is None:
        names = operator_names(log)
    found = [
        Finding(key, share, f"{share:.0%} of the critical path is {CAUSES[key].noun}.", CAUSES[key].advice)
        for key, share in cause_shares(summary).items()
        if share >= SMALL_SHARE
    ]
    return [
        _detailed(finding, summary, log, names or {}) if finding.cause == "run" else finding
        for finding in found
    ]


def with_gains(found: list[Finding], summary: Summary, replayed: WhatIf | None) -> list[Finding]:
    """Adds the seconds that the application would gain without each cause.

    What the driver does outside of tasks is serial, so its gain is its length; what tasks do is replayed.
    """
    gains = replayed.gains if replayed else {}
    serial = {item.cause: item.share * summary.length_us / 1e6 for item in found}
    return [
        replace(item, gain_seconds=gains.get(_REPLAYED[item.cause]) if item.cause in _REPLAYED
                else None if CAUSES[item.cause].is_task_time else serial[item.cause])
        for item in found
    ]  # fmt: skip


def plain_answer(found: list[Finding]) -> str:
    """One or two sentences that come first."""
    if not found:
        return "There is no critical path to speak of: nothing happened in this span."
    task_time = sum(item.share for item in found if CAUSES[item.cause].is_task_time)
    started = sum(item.share for item in found if item.cause == "start-up")
    answer = found[0].sentence
    if found[0].cause == "start-up" and len(found) > 1:
        # that is over once and for all: what comes next is what can be lived with or not
        answer += f" Behind it, {found[1].sentence}"
    if task_time < LITTLE_TASK_TIME * (1 - started):
        answer += " Task time is not your problem; more executors would not help."
    return answer


def _detailed(finding: Finding, summary: Summary, log: ApplicationLog | None, names: Names) -> Finding:
    """Names the operator behind the run of tasks, and its straggler if it has one."""
    by_operator: dict[str, float] = {}
    for work, share in summary.work.items():
        if work.operator not in {"", DRIVER} and _PHASES.get(work.phase, "run") == "run":
            by_operator[work.operator] = by_operator.get(work.operator, 0.0) + share
    if not by_operator:
        return finding
    operator = max(by_operator, key=lambda name: by_operator[name])
    sentence = f"{finding.sentence} {_largest_part(by_operator, operator, finding.share)}"
    straggler = find_straggler(log, operator, names) if log else None
    if straggler is None:
        return Finding(finding.cause, finding.share, sentence, _scaling_advice(operator, log, names))
    sentence += (
        f" Its longest task, partition {straggler.partition} on executor {straggler.executor}, takes "
        f"{straggler.seconds:.1f} s, {straggler.ratio:.1f} times the median."
    )
    skewed = straggler.records_ratio >= SKEW_RATIO
    advice = (
        f"The data is skewed ({straggler.records_ratio:.1f} times the median records): split the hot keys, "
        "salt them, or repartition." if skewed
        else "It does not read more records than the others: look at the executor, or try speculation."
    )  # fmt: skip
    return Finding(finding.cause, finding.share, sentence, advice)


def _largest_part(by_operator: dict[str, float], operator: str, share: float) -> str:
    """Which operator most of it is; where none is, whether it is stages that do the same again and again."""
    if by_operator[operator] >= share / 2:
        return f"Most of it ({by_operator[operator]:.0%}) is {operator}."
    alike: dict[str, list[float]] = {}
    for name, part in by_operator.items():
        alike.setdefault(_STAGE.sub("", name), []).append(part)
    what = max(alike, key=lambda name: sum(alike[name]))
    if sum(alike[what]) >= share / 2 and len(alike[what]) > 1:
        return f"Most of it ({sum(alike[what]):.0%}) is {what}, in {len(alike[what])} stages."
    return f"The largest part of it ({by_operator[operator]:.0%}) is {operator}."


def find_straggler(log: ApplicationLog, operator: str, names: Names | None = None) -> Straggler | None:
    """The worst straggler among the stages of an operator."""
    names = operator_names(log) if names is None else names
    tasks = log.tasks
    worst: Straggler | None = None
    for (stage, attempt), name in names.items():
        rows = np.nonzero((tasks["stage"] == stage) & (tasks["attempt"] == attempt)
                          & (tasks["outcome"] == SUCCEEDED))[0] if name == operator else ()  # fmt: skip
        if len(rows) < 2:
            continue
        seconds = (tasks["finish"][rows] - tasks["launch"][rows]) / 1000
        ratio = float(seconds.max() / max(np.median(seconds), 1e-3))
        longest = int(rows[seconds.argmax()])
        records = tasks["records_in"][rows]
        share = float(tasks["records_in"][longest] / max(np.median(records), 1.0))
        # A stage that lasts much longer than its longest task waits for slots, not for that task.
        span = float(tasks["finish"][rows].max() - tasks["launch"][rows].min()) / 1000
        holds_up = seconds.max() >= HOLDS_UP * span
        stands_out = holds_up and (ratio >= SKEW_RATIO or (ratio >= LONGER and share >= SKEW_RATIO))
        if stands_out and (worst is None or seconds.max() > worst.seconds):
            executor = tasks.executors[int(tasks["executor"][longest])]
            partition = int(tasks["partition"][longest])
            worst = Straggler(operator, ratio, float(seconds.max()), executor, partition, share)
    return worst


def _scaling_advice(operator: str, log: ApplicationLog | None, names: Names) -> str:
    """More slots where the operator's tasks queue for them, more partitions where slots stand idle."""
    if log is None:
        return CAUSES["run"].advice
    slots = sum(executor.cores for executor in log.executors.values())
    counts = [log.stages[key].tasks for key, name in names.items() if name == operator]
    tasks = max(counts, default=0)
    if slots and tasks > slots:
        return f"Its {tasks} tasks share {slots} slots: more executors would shorten it."
    if slots and 0 < tasks < slots:
        return (
            f"It has {tasks} tasks for {slots} slots: more partitions would help, more executors would not."
        )
    return CAUSES["run"].advice
