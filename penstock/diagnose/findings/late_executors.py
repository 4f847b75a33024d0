"""Executors that came after their jobs had begun, as dynamic allocation makes them."""

from __future__ import annotations

from dataclasses import replace

from penstock.diagnose.findings.advice import Advice
from penstock.diagnose.log.application import ApplicationLog
from penstock.diagnose.log.failures import is_orderly_removal
from penstock.diagnose.whatif.capacity import measure_capacity
from penstock.diagnose.whatif.scenarios import Rehearsal
from penstock.diagnose.whatif.task_graph import Anchor, SlotChange, TaskGraph
from penstock.units.figures import count_of

_LEAST = "spark.dynamicAllocation.minExecutors"


def advise_on_late_executors(log: ApplicationLog, rehearsal: Rehearsal) -> Advice | None:
    """Advise to keep executors where some came while a job ran; in the replay all are there from the start.

    Executors that take the place of lost ones are no matter of their start.
    """
    lost = any(one.removed >= 0 and not is_orderly_removal(one.reason) for one in log.executors.values())
    jobs = [(job.started, job.ended) for job in log.jobs.values() if job.ended >= 0]
    added = [one.added for one in log.executors.values() if one.cores and one.added >= 0]
    late = [at for at in added if any(started < at < ended for started, ended in jobs)]
    if lost or not late:
        return None
    capacity, most = measure_capacity(log), rehearsal.graph.slots
    seconds = sum(ended - started for started, ended in jobs) / 1000
    mean = sum(capacity.integrate(*job) for job in jobs) / max(seconds, 1e-3)
    evidence = (
        f"{count_of(len(late), 'executor')} came while a job ran: {mean:.1f} of {count_of(most, 'slot')} "
        "were there on average."
    )
    elastic = log.properties.get("spark.dynamicAllocation.enabled") == "true"
    largest = max(one.cores for one in log.executors.values())
    settings = {_LEAST: str(max(1, most // largest))} if elastic else {}
    text = "Keep executors between jobs, or wait for them before the first one."
    return Advice("executors", text, evidence, settings, _bring_all_at_once)


def _bring_all_at_once(graph: TaskGraph) -> TaskGraph:
    return replace(graph, changes=(SlotChange(Anchor(None, False, 0.0), graph.slots),))
