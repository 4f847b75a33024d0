"""Failed jobs, stage attempts, tasks by reason and executors, with the work that was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.diagnose.log.application import FAILED, ApplicationLog
from penstock.diagnose.log.failures import (
    EXCEPTION,
    EXECUTOR_LOST,
    FETCH_FAILED,
    OUT_OF_MEMORY,
    TaskFailure,
    is_cancelled,
    is_orderly_removal,
    is_out_of_memory,
)
from penstock.diagnose.trace.events import Floats
from penstock.diagnose.whatif.scenarios import Gain, Rehearsal, without_time
from penstock.diagnose.whatif.task_graph import keep_executors
from penstock.units.figures import count_of, scale_spark_size
from penstock.units.texts import list_first

MOST_NAMED = 3
_ADVICE = {
    OUT_OF_MEMORY: "Give each task more memory: a larger heap, fewer cores an executor, or more partitions.",
    FETCH_FAILED: "Shuffle data was gone with its executor: find out why executors go, or use an external "
    "shuffle service.",
    EXECUTOR_LOST: "Look at the logs of the lost executors and of the cluster manager.",
    EXCEPTION: "Mend the code or the data that the message names; a retry repeats it.",
}


@dataclass(frozen=True, slots=True)
class FailedWork:
    """Counts of what failed in a span, and the core-seconds of tasks that had to be repeated."""

    jobs: int
    of_jobs: int
    repeated_stages: int
    tasks: Mapping[str, int]
    lost_executors: Mapping[str, str]
    core_seconds: float
    sentence: str
    advice: str
    settings: Mapping[str, str] = field(default_factory=dict)
    gain: Gain | None = None


def find_failed_work(log: ApplicationLog, rehearsal: Rehearsal | None = None) -> FailedWork | None:
    """Return what failed in the log, or None if nothing did."""
    broken = [job for job in log.jobs.values() if job.failure and not is_cancelled(job.failure)]
    lost = {
        name: executor.reason
        for name, executor in log.executors.items()
        if log.start <= executor.removed < log.end and not is_orderly_removal(executor.reason)
    }
    repeated = sum(1 for _, attempt in log.stages if attempt > 0)
    if not (broken or log.failures or lost or repeated):
        return None
    kinds = Counter(one.kind for one in log.failures)
    worst = _find_worst(kinds, lost)
    wasted = _measure_lost_work(log)
    sentences = [
        f"{len(broken)} of {count_of(len(log.jobs), 'job')} failed." if broken else "",
        _describe_tasks(kinds, log.failures, float(wasted.sum())),
        f"{count_of(repeated, 'stage')} ran again." if repeated else "",
        _describe_lost(lost),
        f'The first job failed with "{broken[0].failure}".' if broken and not log.failures else "",
    ]
    return FailedWork(
        jobs=len(broken),
        of_jobs=len(log.jobs),
        repeated_stages=repeated,
        tasks=dict(kinds.most_common()),
        lost_executors=lost,
        core_seconds=float(wasted.sum()),
        sentence=" ".join(filter(None, sentences)),
        advice=_ADVICE.get(worst, "Look at the driver's log."),
        settings=_choose_settings(log, worst),
        gain=_measure_gain(log, rehearsal, wasted, lost) if rehearsal else None,
    )


def _measure_gain(
    log: ApplicationLog, rehearsal: Rehearsal, wasted: Floats, lost: Mapping[str, str]
) -> Gain | None:
    """Return what would be gained if no work were repeated and no executor lost."""
    if not wasted.any() and not lost:
        return None
    shorten, keep = without_time(wasted), keep_executors(log, lost)
    return rehearsal.measure_gain(lambda graph: keep(shorten(graph)))


def _find_worst(kinds: Counter[str], lost: Mapping[str, str]) -> str:
    """Return the kind to act on: memory explains lost executors, and these explain failed fetches."""
    if kinds[OUT_OF_MEMORY] or any(is_out_of_memory(reason) for reason in lost.values()):
        return OUT_OF_MEMORY
    if lost and kinds[EXCEPTION] < kinds[EXECUTOR_LOST] + kinds[FETCH_FAILED] + 1:
        return EXECUTOR_LOST
    return kinds.most_common(1)[0][0] if kinds else EXECUTOR_LOST if lost else ""


def _measure_lost_work(log: ApplicationLog) -> Floats:
    """Return for each task the seconds of earlier attempts of its partition that failed.

    Those of a partition that never succeeded stay with its last attempt.
    """
    tasks, wasted = log.tasks, np.zeros(len(log.tasks))
    rows = np.nonzero((tasks["outcome"] == FAILED) & (tasks["finish"] >= 0))[0]
    for row in rows.tolist():
        same = (tasks["stage"] == tasks["stage"][row]) & (tasks["attempt"] == tasks["attempt"][row])
        same &= (tasks["partition"] == tasks["partition"][row]) & (tasks["finish"] >= 0)
        wasted[np.nonzero(same)[0][-1]] += (tasks["finish"][row] - tasks["launch"][row]) / 1000
    return wasted


def _describe_tasks(kinds: Counter[str], failures: tuple[TaskFailure, ...], seconds: float) -> str:
    if not failures:
        return ""
    first = next(one for one in failures if one.kind == kinds.most_common(1)[0][0])
    named = ", ".join(f"{kind} {number}" if len(kinds) > 1 else kind for kind, number in kinds.most_common())
    where = f'first in stage {first.stage}, partition {first.partition}: "{first.message}"'
    lost = count_of(round(seconds), "core-second")
    return f"{count_of(len(failures), 'task')} failed ({named}; {where}), {lost} lost."


def _describe_lost(lost: Mapping[str, str]) -> str:
    if not lost:
        return ""
    names = list(lost)
    if len(names) == 1:
        return f"Executor {names[0]} was lost ({lost[names[0]]})."
    reason, number = Counter(lost.values()).most_common(1)[0]
    often = "each" if number == len(names) else f"{number} of them"
    return f"{len(names)} executors were lost ({list_first(names, MOST_NAMED)}; {often}: {reason})."


def _choose_settings(log: ApplicationLog, worst: str) -> dict[str, str]:
    if worst != OUT_OF_MEMORY:
        return {}
    reasons = " ".join(executor.reason for executor in log.executors.values()).lower()
    if "memory limits" in reasons or "137" in reasons:
        # the container was too small for what lies beside the heap
        given = log.properties.get("spark.executor.memoryOverhead", "")
        heap = log.properties.get("spark.executor.memory", "1g")
        return {
            "spark.executor.memoryOverhead": scale_spark_size(given, 2)
            if given
            else scale_spark_size(heap, 0.25)
        }
    return {"spark.executor.memory": scale_spark_size(log.properties.get("spark.executor.memory", "1g"), 2)}
