"""One run: a policy, the manager and the loop over the simulated dataflow, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.batches import BatchExecution
from penstock.dataflow.metrics import Floats, Integers
from penstock.decide.manager import ScalingManager
from penstock.decide.policy import Policy
from penstock.decide.registry import policy_entry
from penstock.journal.records import ActionRecord
from penstock.loop import Loop, LoopSettings
from penstock.ports import Source
from penstock.simulate.batch_source import BatchSource
from penstock.simulate.batches import VirtualBatches
from penstock.simulate.events import VirtualEvents
from penstock.simulate.experiment import Experiment
from penstock.simulate.ports import DecisionNote, MemoryRecord, VirtualActuator, VirtualSource
from penstock.simulate.virtual import Simulated, VirtualDataflow
from penstock.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Run:
    """What one policy did in an experiment; arrays have a row for each second."""

    policy: str
    experiment: Experiment
    held: Integers
    down: NDArray[np.bool_]
    """Whether all stood still for a restart."""
    seen: Floats
    actions: tuple[ActionRecord, ...]
    decisions: tuple[DecisionNote, ...]
    errors: Mapping[str, int]
    """What made the loop step aside → how often."""
    record_latencies: tuple[float, ...] = ()
    """p50, p95 and p99 of single records, where they were followed."""
    batches: tuple[BatchExecution, ...] = ()
    """Batches in the order in which they ended, where slots are shared."""


def simulate(experiment: Experiment, policy: str, seed: int = 0) -> Run:
    """Run a registered policy by its name; the same seed gives the same run."""
    settings = experiment.settings.model_copy(update={"policy": policy})
    return run_policy(experiment, policy_entry(policy).make(settings), seed)


def run_policy(experiment: Experiment, policy: Policy, seed: int = 0) -> Run:
    """Let time pass from one policy interval to the next, or to the end of an action, whichever is first."""
    (dataflow, source), record = simulated(experiment, seed), MemoryRecord()
    actuator = VirtualActuator(dataflow)
    interval = int(experiment.settings.policy_interval)
    loop = Loop(
        experiment.name,
        source,
        policy,
        ScalingManager(experiment.settings.manager()),
        record,
        actuator,
        LoopSettings(policy_interval=interval),
    )
    loop.timeline = Timeline(length=0)  # nobody watches a run that takes a second
    errors: dict[str, int] = {}
    while dataflow.now < experiment.seconds:
        due = (dataflow.now // interval + 1) * interval
        dataflow.advance(due if actuator.ends_at is None else min(due, max(actuator.ends_at, dataflow.now)))
        cycle = loop.tick(float(dataflow.now))
        if cycle.error:
            errors[cycle.error] = errors.get(cycle.error, 0) + 1
    return Run(
        policy=policy.name,
        experiment=experiment,
        held=dataflow.held,
        down=dataflow.down,
        seen=dataflow.seen,
        actions=tuple(record.records),
        decisions=tuple(record.decisions),
        errors=errors,
        record_latencies=dataflow.record_latencies() if isinstance(dataflow, VirtualEvents) else (),
        batches=tuple(dataflow.ended) if isinstance(dataflow, VirtualBatches) else (),
    )


def simulated(experiment: Experiment, seed: int) -> tuple[Simulated, Source]:
    """The application that the scenario describes, and what is seen of it."""
    if experiment.shares_slots:
        batches = VirtualBatches(experiment, seed)
        return batches, BatchSource(batches, seed)
    if experiment.scenario.latency == "events":
        events = VirtualEvents(experiment, seed)
        return events, VirtualSource(events, seed)
    fluid = VirtualDataflow(experiment, seed)
    return fluid, VirtualSource(fluid, seed)
