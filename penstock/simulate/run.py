"""One run of a policy: the manager and the loop over a simulated dataflow, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.metrics import BatchExecution, Floats, Integers
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ExecutorState, SlotQuery, SlotWindow, SourceRate
from penstock.decide.manager.manager import ScalingManager
from penstock.decide.policy import ExpectedEffect, Policy, Scale
from penstock.decide.verdict import CountedVerdict
from penstock.journal.records import ActionRecord
from penstock.observe.sources.offered import unread_records
from penstock.plugins.finding import find_policy
from penstock.runtime.loop import Loop, LoopSettings
from penstock.runtime.ports import Ports, Source
from penstock.simulate.batches import VirtualBatches
from penstock.simulate.events import VirtualEvents
from penstock.simulate.experiment import Experiment
from penstock.simulate.flow import VirtualDataflow
from penstock.simulate.ports import LaggingSource, MemoryRecord, Noise, VirtualActuator, VirtualSource
from penstock.simulate.virtual import READ, Simulated


@dataclass(frozen=True, eq=False)
class Run:
    """One policy's run of an experiment; arrays have a row for each second."""

    policy: str
    experiment: Experiment
    held: Integers
    down: NDArray[np.bool_]
    """Whether all stood still for a restart."""
    seen: Floats
    actions: tuple[ActionRecord, ...]
    decisions: tuple[CountedVerdict, ...]
    errors: Mapping[str, int]
    """Reason why the loop stepped aside → how often."""
    record_latencies: tuple[float, ...] = ()
    """p50, p95 and p99 of single records, where they were followed."""
    capable: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """Records a second that each unit could take, with what had failed, was slow or still cold."""
    batches: tuple[BatchExecution, ...] = ()
    """Batches in the order in which they ended, where slots are shared."""


def simulate(experiment: Experiment, policy: str, seed: int = 0) -> Run:
    """Run a policy by its name; the same seed gives the same run."""
    return run_policy(experiment, find_policy(policy).make(experiment.settings), seed)


def run_policy(experiment: Experiment, policy: Policy, seed: int = 0) -> Run:
    """Let time pass from one policy interval to the next, or to the end of an action, whichever is first."""
    (dataflow, source), record = build_application(experiment, seed), MemoryRecord()
    actuator, lag = VirtualActuator(dataflow), int(experiment.scenario.metrics_lag)
    shown = LaggingSource(source, lag)
    settings = experiment.settings
    interval = int(settings.manager.policy_interval)
    manager = ScalingManager(settings.manager, settings.bounds, settings.goals)
    # nobody watches a run that takes a second, so nothing is kept to be watched
    loop_settings = LoopSettings(policy_interval=interval, timeline_length=0)
    loop = Loop(
        experiment.name, Ports(shown if lag else source, policy, manager, record, actuator), loop_settings
    )
    errors: dict[str, int] = {}
    while dataflow.now < experiment.seconds:
        due = (dataflow.now // interval + 1) * interval
        until = due if actuator.ends_at is None else min(due, max(actuator.ends_at, dataflow.now))
        for moment in _list_moments(dataflow.now, until, interval, lag):
            dataflow.advance(moment)
            shown.gather(moment)
        dataflow.advance(until)
        cycle = loop.tick(float(dataflow.now))
        if cycle.error:
            errors[cycle.error] = errors.get(cycle.error, 0) + 1
    return _end_run(dataflow, policy.name, record, errors)


def _list_moments(start: int, end: int, interval: int, lag: int) -> range:
    """List the moments in (start, end] at which a window ends that is shown a lag later, when it is due."""
    if not lag:
        return range(0)
    first = start + interval - (start + lag) % interval
    return range(first, end + 1, interval)


def follow_sizes(experiment: Experiment, sizes: Integers, name: str, seed: int = 0) -> Run:
    """Hold given sizes, a row for each second, whatever a loop would do."""
    dataflow, _ = build_application(replace(experiment, initial=sizes[0].copy()), seed)
    changes = np.flatnonzero((sizes[1:] != sizes[:-1]).any(axis=1)) + 1
    record = MemoryRecord()
    for second in changes.tolist():
        dataflow.advance(second)
        before, wanted = dataflow.parallelism(), sizes[second]
        planned = dict(zip(experiment.units, wanted.tolist(), strict=True))
        scale = Scale(planned, name, ExpectedEffect("as given"))
        record.intend(float(second), experiment.name, 0, scale, before)
        dataflow.wanted = wanted.copy()
        dataflow.take_over()
    dataflow.advance(experiment.seconds)
    return _end_run(dataflow, name, record, {})


def _end_run(dataflow: Simulated, policy: str, record: MemoryRecord, errors: Mapping[str, int]) -> Run:
    return Run(
        policy=policy,
        experiment=dataflow.experiment,
        held=dataflow.held,
        down=dataflow.down,
        seen=dataflow.seen,
        actions=tuple(record.records),
        decisions=tuple(record.verdicts),
        errors=errors,
        record_latencies=dataflow.record_latencies() if isinstance(dataflow, VirtualEvents) else (),
        capable=dataflow.capable,
        batches=tuple(dataflow.ended) if isinstance(dataflow, VirtualBatches) else (),
    )


def build_application(experiment: Experiment, seed: int) -> tuple[Simulated, Source]:
    """Build the application that the scenario describes, and the source of what is seen of it."""
    if experiment.shares_slots:
        batches = VirtualBatches(experiment, seed)
        return batches, BatchSource(batches, seed)
    if experiment.scenario.latency == "events":
        events = VirtualEvents(experiment, seed)
        return events, VirtualSource(events, seed)
    fluid = VirtualDataflow(experiment, seed)
    return fluid, VirtualSource(fluid, seed)


class BatchSource:
    """Windows of the batches that ended since the last call, with seeded noise on what is measured."""

    def __init__(self, application: VirtualBatches, seed: int) -> None:
        self.application = application
        self._noise = Noise(application.experiment.scenario.noise, seed)
        self._start = 0

    def observe(self, now: float) -> SlotWindow | NotReady:
        """Return what happened since the last call."""
        application, start, end = self.application, self._start, self.application.now
        if end <= start:
            return NotReady("no time has passed", "a window", now + 1)
        self._start = end
        batches = tuple(self._add_noise(batch) for batch in application.finished)
        application.finished.clear()
        alive = int(application.working[0])
        return SlotWindow(
            application=application.experiment.name,
            start=start,
            end=end,
            parallelism=application.parallelism(),
            queries=(self._query(start, end, batches),),
            executors=tuple(
                ExecutorState(str(n), f"host-{n}", application.spec.cores) for n in range(1, alive + 1)
            ),
            slots_per_executor=application.spec.cores,
        )

    def _query(self, start: int, end: int, batches: tuple[BatchExecution, ...]) -> SlotQuery:
        application, experiment = self.application, self.application.experiment
        seconds = end - start
        offered = self._noise.on(application.offered[start:end, application.source].sum() / seconds)
        unread = unread_records(offered, application.spec.trigger, application.newest, end)
        read = float(application.seen[start:end, READ].sum()) / seconds
        return SlotQuery(
            query_id=experiment.name,
            name=experiment.name,
            graph=experiment.graph,
            sources={experiment.graph.sources[0]: SourceRate(offered, read, unread)},
            batches=batches,
            period_seconds=application.spec.trigger,
            latency_seconds=self._noise.on(application.latency) if application.latency else None,
            running=application.running,
        )

    def _add_noise(self, batch: BatchExecution) -> BatchExecution:
        """Disturb each stage as a whole: tasks of one batch are disturbed alike."""
        stages = []
        for stage in batch.stages:
            factor = self._noise.on(1.0)
            useful, wall = stage.useful_seconds * factor, stage.wall_seconds * factor
            stages.append(replace(stage, useful_seconds=useful, wall_seconds=wall))
        grown = sum(stage.wall_seconds for stage in stages) - sum(one.wall_seconds for one in batch.stages)
        return replace(batch, stages=tuple(stages), seconds=batch.seconds + grown)
