"""The answer in words: what the critical path is made of, what holds stages up, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from penstock.diagnose.log.application import SUCCEEDED, ApplicationLog, StageKey
from penstock.diagnose.path.summary import Summary
from penstock.diagnose.trace.driver_timeline import DRIVER
from penstock.diagnose.trace.events import Activity
from penstock.diagnose.trace.from_log import name_operators
from penstock.diagnose.whatif.scenarios import WhatIf

SMALL_SHARE = 0.05
LITTLE_TASK_TIME = 0.3
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
    """A cause with its share of the critical path, in a sentence, with advice and the seconds to gain."""

    cause: str
    share: float
    sentence: str
    advice: str
    gain_seconds: float | None = None


_CAUSES = (
    Cause("start-up", "the start of the application",
          "Keep the session alive between runs, or start smaller.", ("start-up",)),
    Cause("program", "the program on the driver, outside of any job",
          "Look at the driver's own code: collect, loops over rows, calls to other services.",
          ("program", "result handling")),
    Cause("scheduling", "the driver's scheduling (planning, submission, task launch, barriers)",
          "Use fewer and larger tasks, coalesce partitions, cache plans, or give the driver more cores.",
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
    Cause("unknown", "time that the trace does not explain", "More detailed traces are needed here.",
          ("lost",)),
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


def list_findings(
    summary: Summary, log: ApplicationLog | None = None, names: Names | None = None
) -> list[LatencyFinding]:
    """Return the causes that matter, largest first; `names` are the operators of the log's stages."""
    if log is not None and names is None:
        names = name_operators(log)
    found = [
        LatencyFinding(
            key, share, f"{share:.0%} of the critical path is {CAUSES[key].noun}.", CAUSES[key].advice
        )
        # a cold start happens once: what the later batches cost comes first
        for key, share in sorted(share_by_cause(summary).items(), key=lambda one: one[0] == "cold batch")
        if share >= SMALL_SHARE
    ]
    return [
        _name_operator(finding, summary, log, names or {}) if finding.cause == "run" else finding
        for finding in found
    ]


def add_gains(found: list[LatencyFinding], summary: Summary, replayed: WhatIf | None) -> list[LatencyFinding]:
    """Add the seconds that the application would gain without each cause.

    The driver's causes are serial: their gain is their length. The gain of a task's cause is replayed.
    """
    gains = replayed.gains if replayed else {}

    def gain(finding: LatencyFinding) -> float | None:
        cause = CAUSES[finding.cause]
        return gains.get(cause.scenario) if cause.is_task_time else finding.share * summary.length_us / 1e6

    return [replace(finding, gain_seconds=gain(finding)) for finding in found]


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


def _name_operator(
    finding: LatencyFinding, summary: Summary, log: ApplicationLog | None, names: Names
) -> LatencyFinding:
    """Name the operator behind most of the task time, and its straggler if it has one."""
    by_operator: dict[str, float] = {}
    for work, share in summary.work.items():
        if work.operator not in {"", DRIVER} and _CAUSE_OF_PHASE.get(work.phase, "run") == "run":
            by_operator[work.operator] = by_operator.get(work.operator, 0.0) + share
    if not by_operator:
        return finding
    operator = max(by_operator, key=lambda name: by_operator[name])
    sentence = f"{finding.sentence} {_describe_largest(by_operator, operator, finding.share)}"
    straggler = find_straggler(log, operator, names) if log else None
    if straggler is None:
        return replace(finding, sentence=sentence, advice=_advise_scaling(operator, log, names))
    sentence += (
        f" Its longest task, partition {straggler.partition} on executor {straggler.executor}, takes "
        f"{straggler.seconds:.1f} s, {straggler.ratio:.1f} times the median."
    )
    return replace(finding, sentence=sentence, advice=_advise_on_straggler(straggler))


def _describe_largest(by_operator: dict[str, float], operator: str, share: float) -> str:
    """Name the operator with most of the time or, if none has most, what many stages repeat."""
    if by_operator[operator] >= share / 2:
        return f"Most of it ({by_operator[operator]:.0%}) is {operator}."
    alike: dict[str, list[float]] = {}
    for name, part in by_operator.items():
        alike.setdefault(_STAGE.sub("", name), []).append(part)
    what = max(alike, key=lambda name: sum(alike[name]))
    if sum(alike[what]) >= share / 2 and len(alike[what]) > 1:
        return f"Most of it ({sum(alike[what]):.0%}) is {what}, in {len(alike[what])} stages."
    return f"The largest part of it ({by_operator[operator]:.0%}) is {operator}."


def _advise_on_straggler(straggler: Straggler) -> str:
    if straggler.is_skewed:
        return (
            f"The data is skewed ({straggler.records_ratio:.1f} times the median records): split the hot "
            "keys, salt them, or repartition."
        )
    return "It does not read more records than the others: look at the executor, or try speculation."


def _advise_scaling(operator: str, log: ApplicationLog | None, names: Names) -> str:
    """Advise more executors where the operator's tasks queue, more partitions where slots are idle."""
    if log is None:
        return CAUSES["run"].advice
    slots = sum(executor.cores for executor in log.executors.values())
    tasks = max((log.stages[key].tasks for key, name in names.items() if name == operator), default=0)
    on_slots = f"{slots} slot{'s' if slots > 1 else ''}"
    if slots and tasks > slots:
        return f"Its {tasks} tasks share {on_slots}: more executors would shorten it."
    if slots and 0 < tasks < slots:
        has = f"{tasks} task{'s' if tasks > 1 else ''}"
        return f"It has {has} for {on_slots}: more partitions would help, more executors would not."
    return CAUSES["run"].advice


Names = Mapping[StageKey, str]

# A straggler takes this many times the median of its stage; LONGER is enough if it also reads that much more.
SKEW_RATIO = 2.0
LONGER = 1.25
# A stage is held up by its longest task if that takes this share of it; otherwise it waits for slots.
HOLDS_UP = 0.5
# A slow executor's tasks take this many times as long as others, and do not read MORE_RECORDS times as much.
SLOWER = 2.0
MORE_RECORDS = 1.25


@dataclass(frozen=True, slots=True)
class Straggler:
    """The longest task of a stage, where it is far longer than the others."""

    ratio: float
    seconds: float
    executor: str
    partition: int
    records_ratio: float

    @property
    def is_skewed(self) -> bool:
        """Whether the task reads that many more records than the others."""
        return self.records_ratio >= SKEW_RATIO


def find_straggler(log: ApplicationLog, operator: str, names: Names | None = None) -> Straggler | None:
    """Return the worst straggler among the stages of an operator."""
    names = name_operators(log) if names is None else names
    stages = [key for key, name in names.items() if name == operator]
    found = [one for key in stages if (one := _find_in_stage(log, key))]
    return max(found, key=lambda one: one.seconds, default=None)


def _find_in_stage(log: ApplicationLog, stage: StageKey) -> Straggler | None:
    tasks = log.tasks
    done = (tasks["stage"] == stage[0]) & (tasks["attempt"] == stage[1]) & (tasks["outcome"] == SUCCEEDED)
    rows = np.nonzero(done)[0]
    if len(rows) < 2:
        return None
    seconds = (tasks["finish"][rows] - tasks["launch"][rows]) / 1000
    longest = int(rows[seconds.argmax()])
    found = Straggler(
        ratio=float(seconds.max() / max(np.median(seconds), 1e-3)),
        seconds=float(seconds.max()),
        executor=tasks.executors[int(tasks["executor"][longest])],
        partition=int(tasks["partition"][longest]),
        records_ratio=float(tasks["records_in"][longest] / max(np.median(tasks["records_in"][rows]), 1.0)),
    )
    span = float(tasks["finish"][rows].max() - tasks["launch"][rows].min()) / 1000
    stands_out = found.ratio >= SKEW_RATIO or (found.ratio >= LONGER and found.is_skewed)
    return found if stands_out and found.seconds >= HOLDS_UP * span else None


def find_slow_executor(log: ApplicationLog, operator: str, names: Names) -> tuple[str, float] | None:
    """Return the executor whose tasks of the operator are slow without more to read, and how slow."""
    tasks = log.tasks
    stages = [stage for (stage, _), name in names.items() if name == operator]
    rows = np.nonzero(np.isin(tasks["stage"], stages) & (tasks["outcome"] == SUCCEEDED))[0]
    executor, seconds = tasks["executor"][rows], (tasks["finish"] - tasks["launch"])[rows] / 1000
    medians = {int(one): float(np.median(seconds[executor == one])) for one in np.unique(executor)}
    if len(medians) < 2:
        return None
    slowest = max(medians, key=lambda one: medians[one])
    mine = executor == slowest
    # even its quickest task must be slower than the others, or one hot task would explain it
    ratio = float(seconds[mine].min() / max(np.median(seconds[~mine]), 1e-3))
    records = tasks["records_in"][rows]
    fair = np.median(records[mine]) <= MORE_RECORDS * max(float(np.median(records[~mine])), 1.0)
    return (tasks.executors[slowest], ratio) if ratio >= SLOWER and fair and mine.sum() > 1 else None
