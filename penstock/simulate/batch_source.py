"""What a policy sees of simulated micro-batches: the same windows that Spark gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.dataflow.batches import BatchExecution
from penstock.dataflow.metrics import MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, Execution, ExecutorState, QueryWindow, SourceRate
from penstock.observe.sources import unread_records
from penstock.simulate.batches import VirtualBatches
from penstock.simulate.ports import Noise


class BatchSource:
    """Windows of the batches that ended since the last call, with seeded noise on what is measured."""

    def __init__(self, application: VirtualBatches, seed: int) -> None:
        self.application = application
        self._noise = Noise(application.experiment.scenario.noise, seed)
        self._start = 0

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        """What happened since the last call."""
        application, start, end = self.application, self._start, self.application.now
        if end <= start:
            return NotReady("no time has passed", "a window", now + 1)
        self._start = end
        batches = tuple(self._measured(batch) for batch in application.finished)
        application.finished.clear()
        held = application.parallelism()
        alive = int(application.working[0])
        return ApplicationWindow(
            application=application.experiment.name,
            start=start,
            end=end,
            execution=Execution.SHARED_SLOTS,
            parallelism=held,
            queries=(self._query(start, end, batches),),
            executors=tuple(
                ExecutorState(str(n), f"host-{n}", application.spec.cores) for n in range(1, alive + 1)
            ),
            slots_per_executor=application.spec.cores,
        )

    def _query(self, start: int, end: int, batches: tuple[BatchExecution, ...]) -> QueryWindow:
        application, experiment = self.application, self.application.experiment
        seconds = end - start
        offered = self._noise.on(application.offered[start:end, application.source].sum() / seconds)
        unread = unread_records(offered, application.spec.trigger, application.newest, end)
        rate = SourceRate(offered, application.observed(start, end) / seconds, unread)
        latency = application.latency()
        return QueryWindow(
            query_id=experiment.name,
            name=experiment.name,
            graph=experiment.graph,
            metrics=_instances(application, start, end, batches),
            sources={experiment.graph.sources[0]: rate},
            batches=batches,
            period_seconds=application.spec.trigger,
            latency_seconds=None if latency is None else self._noise.on(latency),
        )

    def _measured(self, batch: BatchExecution) -> BatchExecution:
        """Noise on each stage as a whole: tasks of one batch are disturbed alike."""
        stages = []
        for stage in batch.stages:
            factor = self._noise.on(1.0)
            useful, wall = stage.useful_seconds * factor, stage.wall_seconds * factor
            stages.append(replace(stage, useful_seconds=useful, wall_seconds=wall))
        grown = sum(stage.wall_seconds for stage in stages) - sum(one.wall_seconds for one in batch.stages)
        return replace(batch, stages=tuple(stages), seconds=batch.seconds + grown)


def _instances(
    application: VirtualBatches, start: int, end: int, batches: tuple[BatchExecution, ...]
) -> MetricWindow:
    """One row for each operator: the slots of all executors take their tasks alike."""
    names = application.experiment.names
    sums = np.zeros((4, len(names)))
    for batch in batches:
        for stage in batch.stages:
            columns = stage.records_in, stage.records_out, stage.useful_seconds, stage.waiting_seconds
            sums[:, names.index(stage.operator)] += [column.sum() for column in columns]
    return MetricWindow(start, end, np.arange(len(names)), *sums)
