"""One word count on a real cluster and in the simulator: how far apart they are.

What no service time says is taken from the real run: the fixed cost of a batch from its small batches before
the load steps up, and the time that executors take to come. All else is the simulator's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import yaml  # type: ignore[import-untyped]

from penstock.bench.report import Row
from penstock.bench.spark_experiment import DS2, run_ds2
from penstock.bench.spark_experiment import Experiment as Planned
from penstock.bench.spark_experiment import Run as ClusterRun
from penstock.bench.traces import backlog_record_seconds, settled_batch_seconds, slots_at
from penstock.bench.wordcount import HIGH_RATE, LOAD_AFTER_SECONDS, TRIGGER_SECONDS, Case
from penstock.dataflow.window import EXECUTORS
from penstock.journal.records import ActionRecord
from penstock.simulate.experiment import Experiment
from penstock.simulate.loading import parse
from penstock.simulate.run import Run, simulate
from penstock.simulate.virtual import BACKLOG
from penstock.workloads.profiles import parse_profile
from penstock.workloads.sentences import WORDS_PER_SENTENCE

CASE = Case("under", 1, ((0, HIGH_RATE),), 105)
SETTLED_SECONDS = 40.0
"""The end of the run, over which batches are compared."""

COMPARED = ("steps", "first_change_s", "final_slots", "batch_s", "backlog_record_s", "slot_s")


def compare_with_cluster(progress: Callable[[str], None]) -> tuple[list[Row], dict[str, float]]:
    """Run the word count on a cluster, then simulate it, and say by how much each figure differs."""
    planned = CASE.experiment()
    progress("the word count on a real cluster")
    real = run_ds2(planned)
    progress("the same in the simulator")
    fixed, pause = fixed_seconds(real, planned), change_seconds(real)
    found = simulate(simulated_scenario(planned, fixed, pause), DS2, 0)
    rows = [
        {"case": "word count", "system": "cluster", **cluster_figures(real, planned)},
        {"case": "word count", "system": "simulated", **simulated_figures(found)},
    ]
    return rows, {**differences(*rows), "reality_fixed_batch_s": fixed, "reality_change_s": pause}


def simulated_scenario(planned: Planned, fixed: float, pause: float) -> Experiment:
    """The planned run as a scenario, from where the load steps up and the autopilot is attached.

    The whole fixed cost of a batch counts as one that no slot shortens.
    """
    workload, shape = planned.workload, planned.shape
    values = {
        "duration": int(planned.end_after_seconds - planned.load_after_seconds),
        "batches": {
            "trigger": planned.trigger_seconds,
            "serial": fixed,
            "executors": planned.executors_at_start,
            "cores": shape.cores,
        },
        "sources": {
            "sentences": {
                "rate": f"constant:{HIGH_RATE:g}",
                "service_time": workload.seconds_per_sentence,
                "tasks": workload.source_partitions,
            }
        },
        "operators": {
            "count": {
                "inputs": ["sentences"],
                "service_time": workload.seconds_per_word * WORDS_PER_SENTENCE,
                "tasks": workload.count_partitions,
            }
        },
        "scaling": {"kind": "live", "pause": round(pause)},
        "settings": dict(planned.settings),
    }
    return parse(yaml.safe_dump(values), Path("word-count.yaml"))


def fixed_seconds(real: ClusterRun, planned: Planned) -> float:
    """What a batch takes beside its records, from those before the load; the first ones warm things up."""
    workload = planned.workload
    per_record = workload.seconds_per_sentence + WORDS_PER_SENTENCE * workload.seconds_per_word
    slots = planned.executors_at_start * planned.shape.cores
    until = real.origin + planned.load_after_seconds
    small = [batch for batch in real.batches if batch.end < until]
    return max(0.0, median(batch.seconds - batch.records * per_record / slots for batch in small[-3:]))


def change_seconds(real: ClusterRun) -> float:
    """How long changes took on the cluster."""
    taken = [action.seconds for action in _size_changes(real) if action.seconds is not None]
    return median(taken) if taken else 0.0


def cluster_figures(real: ClusterRun, planned: Planned) -> Row:
    """What is compared, as the cluster showed it; seconds count from the step of the load."""
    begun, ended = real.origin + LOAD_AFTER_SECONDS, real.ended
    profile = parse_profile(planned.workload.profile)
    backlog = backlog_record_seconds(
        real.batches, lambda time: profile.cumulative(time - real.origin), begun, ended
    )
    ordinary = HIGH_RATE * TRIGGER_SECONDS
    changes = _size_changes(real)
    first = min((action.intended_at for action in changes), default=None)
    held = [slots_at(real.slots, moment) for moment in np.arange(begun, ended, 1.0)]
    return {
        "steps": len(changes),
        "first_change_s": None if first is None else first - begun,
        "final_slots": held[-1],
        "batch_s": settled_batch_seconds(real.batches, ended - SETTLED_SECONDS, ended, ordinary),
        "backlog_record_s": backlog,
        "slot_s": float(sum(held)),
    }


def simulated_figures(run: Run) -> Row:
    """The same of the simulated run."""
    cores = int(run.experiment.slots[0])
    first = min((action.intended_at for action in run.actions), default=None)
    return {
        "steps": len(run.actions),
        "first_change_s": first,
        "final_slots": int(run.held[-1, 0]) * cores,
        "batch_s": _settled_seconds(run),
        "backlog_record_s": float(run.seen[:, BACKLOG].sum()),
        "slot_s": float(run.held[:, 0].sum() * cores),
    }


def differences(real: Row, found: Row) -> dict[str, float]:
    """By what share of the cluster's figure the simulator's is off; left out where either is missing."""
    return {
        f"reality_{name}_off_ratio": abs(found[name] - real[name]) / real[name]
        for name in COMPARED
        if real[name] and found[name] is not None
    }


def _size_changes(real: ClusterRun) -> list[ActionRecord]:
    """Actions on executors; state that was moved is simulated nowhere."""
    return [action for action in real.actions if EXECUTORS in action.planned]


def _settled_seconds(run: Run) -> float | None:
    """The median of the batches in the end."""
    last = [batch for batch in run.batches if batch.start >= run.experiment.seconds - SETTLED_SECONDS]
    return median(batch.seconds for batch in last) if last else None
