"""Advice on time of the driver: planning, launching many small tasks, or many small jobs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.diagnose.findings.advice import Advice
from penstock.diagnose.findings.partitions import advise_on_small_tasks
from penstock.diagnose.log.application import ApplicationLog
from penstock.units.figures import count_of, seconds

# From here on, jobs are many and small rather than one that is slow to start.
MANY_JOBS = 10
PLANNING, LAUNCH = "query planning", "task launch"


def advise_on_scheduling(log: ApplicationLog, phases: Mapping[str, float]) -> Advice:
    """Advise by the phase that has most of the driver's scheduling, and by how many tasks it launches."""
    largest = max(phases, key=lambda name: phases[name], default=LAUNCH)
    small = advise_on_small_tasks(log)
    if small and largest != PLANNING:
        return small.advice
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
