"""The causes of time on the critical path, their shares, and what a finding says of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.diagnose.findings.idle_time import IdleTime
from penstock.diagnose.log.application import ApplicationLog
from penstock.diagnose.path.summary import Summary
from penstock.diagnose.trace.driver_timeline import find_cold_phases
from penstock.diagnose.trace.events import Activity

WANTS_SLOTS = frozenset({"few slots", "run"})
"""Kinds of findings that tell of work alone: nothing is wrong with it."""
# A finding with this share to gain tells of a trouble, which comes before work alone. A driver always takes
# some of the time, and every application starts.
TROUBLE, TROUBLE_OF_DRIVER = 0.1, 0.25
# A cold batch that has most of the time is what there is to tell of a short run.
MOST_OF_IT = 0.5
_NEVER_FIRST = frozenset({"trigger", "unknown", "result"})
_OF_DRIVER = frozenset({"program", "start-up", "scheduling"})


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
CAUSE_OF_PHASE = {phase: cause.key for cause in _CAUSES for phase in cause.phases}
_CAUSE_OF_MESSAGE = {Activity.CONTROL_MESSAGE.label: "scheduling", Activity.DATA_MESSAGE.label: "fetch"}


def share_by_cause(summary: Summary) -> dict[str, float]:
    """Return the share of each cause in the critical path, largest first."""
    shares: dict[str, float] = {}
    for work, share in summary.work.items():
        cause = CAUSE_OF_PHASE.get(work.phase, "run" if work.operator else "unknown")
        shares[cause] = shares.get(cause, 0.0) + share
    for label, cause in _CAUSE_OF_MESSAGE.items():
        shares[cause] = shares.get(cause, 0.0) + summary.activity.get(label, 0.0)
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def sum_task_share(summary: Summary) -> float:
    """Return the share of tasks in the critical path; the rest is the driver's, which no slot shortens."""
    return sum(share for key, share in share_by_cause(summary).items() if CAUSES[key].is_task_time)


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


def set_cold_batches_apart(
    shares: Mapping[str, float], log: ApplicationLog, active_seconds: float
) -> dict[str, float]:
    """Return the shares with the time that tasks of first batches took beyond the usual as cold start."""
    cold = 0.0
    if not log.batches or not shares:
        return dict(shares)
    for batch, phases in find_cold_phases(log.batches):
        if "addBatch" in phases and log.start <= batch.start <= log.end:
            same = [one.phases["addBatch"] for one in log.batches if one.run == batch.run and one is not batch
                    and "addBatch" in one.phases]  # fmt: skip
            cold += (batch.phases["addBatch"] - float(np.median(same))) / 1000
    inside = {key for key in shares if CAUSES[key].is_task_time or key == "scheduling"}
    whole = sum(shares[key] for key in inside) or 1.0
    taken = min(cold / max(active_seconds, 1e-3), whole)
    found = {key: share * (1 - taken / whole) if key in inside else share for key, share in shares.items()}
    found["cold batch"] = found.get("cold batch", 0.0) + taken
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def rank_findings(found: list[LatencyFinding], *, by_gain: bool) -> list[LatencyFinding]:
    """Return troubles by what mending them gains, then work alone; without gains, by share.

    A cold start happens once: what the later batches cost comes before it.
    """
    ranked = sorted(found, key=_rank_by_gain) if by_gain else sorted(found, key=lambda one: -one.share)
    if len(ranked) > 1 and ranked[0].cause == "cold batch" and (not by_gain or ranked[0].share < MOST_OF_IT):
        ranked[:2] = reversed(ranked[:2])
    return ranked


def _rank_by_gain(finding: LatencyFinding) -> tuple[int, float]:
    gained = finding.share if finding.gain_share is None else finding.gain_share
    of_driver = finding.cause in _OF_DRIVER and finding.kind != "small tasks"
    is_work = finding.kind in WANTS_SLOTS or finding.cause in _NEVER_FIRST or finding.cause == "cold batch"
    if not is_work and gained >= (TROUBLE_OF_DRIVER if of_driver else TROUBLE):
        return 0, -gained
    return 1, -finding.share
