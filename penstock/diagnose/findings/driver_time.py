"""What to do about time of the driver: planning, launching many small tasks, or many small jobs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.diagnose.findings.advice import Advice
from penstock.diagnose.findings.partitions import TASKS_PER_SLOT, count_slots, set_partitions
from penstock.diagnose.findings.stragglers import find_rows
from penstock.diagnose.log.application import ApplicationLog
from penstock.units.figures import count_of, seconds

# More tasks for each slot than this, shorter than this, cost more to launch than they bring.
MANY_PER_SLOT, SHORT_SECONDS = 4, 0.2
# From here on, jobs are many and small rather than one that is slow to start.
MANY_JOBS = 10
PLANNING, LAUNCH = "query planning", "task launch"


def advise_on_scheduling(log: ApplicationLog, phases: Mapping[str, float]) -> Advice:
    """Advise by the phase that has most of the driver's scheduling, and by how many tasks it launches."""
    largest = max(phases, key=lambda name: phases[name], default=LAUNCH)
    small = _advise_on_small_tasks(log)
    if small and largest != PLANNING:
        return small
    if largest == PLANNING:
        text = "Plan less often: run fewer, larger queries, cache what they share, and break long plans up."
        return Advice("planning", text)
    median = float(np.median([job.ended - job.started for job in log.jobs.values() if job.ended >= 0] or [0]))
    if len(log.jobs) >= MANY_JOBS:
        text = (
            f"The {count_of(len(log.jobs), 'job')} take {seconds(median / 1000)} each: do the same in fewer "
            "jobs, or run them beside each other from several threads."
        )
        return Advice("small jobs", text)
    return Advice("scheduling", "Give the driver more cores, and look at what else it does.")


def _advise_on_small_tasks(log: ApplicationLog) -> Advice | None:
    """Advise fewer tasks where stages have many for each slot, and they are short."""
    slots = count_slots(log)
    many = [key for key, one in log.stages.items() if one.tasks > MANY_PER_SLOT * max(1, slots)]
    rows = find_rows(log, frozenset(many))
    if not len(rows):
        return None
    length = float(np.median(log.tasks["finish"][rows] - log.tasks["launch"][rows])) / 1000
    if length >= SHORT_SECONDS:
        return None
    wanted = TASKS_PER_SLOT * slots
    most = max(log.stages[key].tasks for key in many)
    text = (
        f"Stages have up to {count_of(most, 'task')} of {seconds(length)}: "
        f"{wanted} larger ones would keep {count_of(slots, 'slot')} busy."
    )
    return Advice("small tasks", text, "", set_partitions(log, frozenset(many), rows, wanted))
