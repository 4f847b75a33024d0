"""An application whose operators share slots: micro-batches, stage after stage, as on Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from penstock.dataflow.costs.model import makespan
from penstock.dataflow.metrics import (
    BatchExecution,
    Floats,
    RunningBatch,
    RunningStage,
    StageExecution,
)
from penstock.observe.sources.offered import OfferedSample
from penstock.simulate.capacity import Table, limit_skew
from penstock.simulate.experiment import Experiment
from penstock.simulate.scenario import BatchSpec, OperatorSpec, SourceSpec
from penstock.simulate.virtual import (
    BACKLOG,
    LATENCY,
    ORACLE,
    READ,
    SERVICES,
    UNLIMITED_SERVICE,
    Simulated,
    make_generator,
)

CLOSE, CLOSE_BY_CHANCE = 1e-6, 1e-3
"""Relative: how well the largest rate of a size is known; less well where it is told by drawn batches."""
DRAWN, MOST_LONGER = 20, 1
"""Batches that are drawn to find it where tasks scatter, and how many of them may outlast the trigger."""


class VirtualBatches(Simulated):
    """Advances micro-batch by micro-batch; executors that come while one runs count from the next on."""

    def __init__(self, experiment: Experiment, seed: int = 0) -> None:
        super().__init__(experiment, seed)
        assert experiment.scenario.batches is not None
        self.spec: BatchSpec = experiment.scenario.batches
        self.source = experiment.graph.index[experiment.graph.sources[0]]
        self._sums = np.concatenate([[0.0], np.cumsum(self.offered[:, self.source])])
        self._moments = np.arange(len(self._sums), dtype=np.float64)
        self._random = [make_generator(seed, SERVICES, number) for number in range(len(experiment.names))]
        self._read = self._clock = 0.0
        self._running: tuple[BatchExecution, float] | None = None
        """The batch under way, and the mean age that its records have when it ends."""
        self._changed_at = -1.0
        self.latency = 0.0
        """Mean age of the records of the last batch when it ended; zero before the first."""
        self._batches = 0
        self.newest = OfferedSample(0.0, 0.0, 0.0)
        """The offsets in the report of the newest batch that has ended."""
        self.finished: deque[BatchExecution] = deque()
        self.ended: list[BatchExecution] = []

    @property
    def slots(self) -> int:
        """Slots that work now."""
        return int(self.working[0]) * self.spec.cores

    @property
    def running(self) -> RunningBatch | None:
        """The batch under way, with the stages that have begun."""
        if self._running is None:
            return None
        batch = self._running[0]
        left = self.now - batch.start - batch.serial_seconds
        stages = []
        for stage in batch.stages:
            if left <= 0:
                break
            stages.append(_show_stage(stage, min(1.0, left / stage.wall_seconds), batch.slots))
            left -= stage.wall_seconds
        return RunningBatch(batch.batch_id, batch.start, self.now - batch.start, batch.slots, tuple(stages))

    def take_over(self) -> None:
        """Let the change under way take effect."""
        super().take_over()
        self._changed_at = float(self.now)

    def flow_on(self, until: int, stopped: bool) -> None:
        """Let batches begin and end up to then; in a restart none begins, and one under way is finished."""
        for second in range(self.now, until):
            self._finish(second + 1.0)
            while self._running is None and not stopped and self.slots and self._clock < second + 1.0:
                self._begin(max(self._clock, float(second)))
                self._finish(second + 1.0)
            self._look(second, stopped)

    def _finish(self, before: float) -> None:
        if self._running is None:
            return
        batch, latency = self._running
        ends = batch.start + batch.seconds
        if ends > before:
            return
        self.newest = OfferedSample(batch.start, self._count_offered(batch.start), self._read)
        unsettled = batch.start < self._changed_at <= ends
        self.ended.append(replace(batch, settled=not unsettled))
        self.finished.append(self.ended[-1])
        self.latency, self._running = latency, None
        trigger = self.spec.trigger
        self._clock = max(ends, (batch.start // trigger + 1) * trigger)

    def _begin(self, start: float) -> None:
        """Take all that was offered so far, at most what one batch may have."""
        records = min(self._count_offered(start) - self._read, self.spec.most_records or np.inf)
        if records <= 0:
            self._clock = (start // self.spec.trigger + 1) * self.spec.trigger
            return
        factors = [
            spec.distribution.draw_factors(random, spec.tasks) if isinstance(spec, OperatorSpec) else None
            for spec, random in zip(self.experiment.specs, self._random, strict=True)
        ]
        slowed = np.broadcast_to(1 / np.asarray(self.shares), (len(factors),))
        stages = stage_executions(self.experiment, records, self.slots, factors, slowed)
        seconds = self.spec.serial + sum(stage.wall_seconds for stage in stages)
        oldest, newest = np.interp([self._read, self._read + records], self._sums, self._moments)
        latency = start - (oldest + newest) / 2 + seconds
        batch = BatchExecution(self._batches, start, seconds, self.slots, records, tuple(stages))
        self._running = batch, float(latency)
        self._batches += 1
        self._read += records
        self._spread(start, start + seconds, records)

    def _count_offered(self, moment: float) -> float:
        return float(np.interp(moment, self._moments, self._sums))

    def _spread(self, start: float, end: float, records: float) -> None:
        """Spread what a batch reads over its whole time."""
        edges = np.arange(int(start), min(int(np.ceil(end)), self.experiment.seconds) + 1.0)
        reached: Floats = np.clip(edges, start, end)
        parts = (reached[1:] - reached[:-1]) / (end - start)
        self.seen[int(start) : int(start) + len(parts), READ] += parts * records

    def _look(self, second: int, stopped: bool) -> None:
        """Note the latency of the last batch, or of the records that a longer one still holds."""
        if self._running is not None:
            self.seen[second, LATENCY] = max(self.latency, second + 1 - self._running[0].start)
        else:
            self.latency += 1.0 if stopped else 0.0
            self.seen[second, LATENCY] = self.latency
        self.seen[second, BACKLOG] = max(0.0, self._sums[second + 1] - self._read)


def _show_stage(stage: StageExecution, share: float, slots: int) -> RunningStage:
    """Return a stage of which this share has passed: its first tasks are done, the next ones run."""
    done = int(share * stage.tasks)
    finished = StageExecution(
        operator=stage.operator,
        records_in=stage.records_in[:done],
        records_out=stage.records_out[:done],
        useful_seconds=stage.useful_seconds[:done],
        waiting_seconds=stage.waiting_seconds[:done],
        wall_seconds=share * stage.wall_seconds,
    )
    return RunningStage(
        operator=stage.operator,
        tasks_total=stage.tasks,
        tasks_done=done,
        tasks_running=min(slots, stage.tasks - done),
        records_done=float(finished.records_in.sum()),
        done=finished if done else None,
        is_over=share >= 1,
    )


def stage_executions(
    experiment: Experiment,
    records: float,
    slots: int,
    factors: Sequence[Floats | None],
    slowed: Floats,
) -> list[StageExecution]:
    """Return the stages of a batch of so many records, one after the other on these slots."""
    reaching = np.zeros(len(experiment.names))
    stages = []
    for number, (name, spec) in enumerate(zip(experiment.names, experiment.specs, strict=True)):
        feeds = experiment.graph.upstream[number]
        taken = sum(reaching[feed] for feed in feeds) if feeds else records
        reaching[number] = taken * experiment.selectivity[number]
        shares = _share_out(spec.tasks, float(experiment.skews[number]))
        drawn = factors[number]
        work = taken * shares * record_seconds(spec, slots) * slowed[number]
        useful = spec.task_time + (work if drawn is None else work * drawn)
        wall = makespan(useful, slots)
        sent = reaching[number] * shares
        stages.append(StageExecution(name, taken * shares, sent, useful, np.zeros(spec.tasks), wall))
    return stages


@lru_cache(maxsize=256)
def _share_out(tasks: int, skew: float) -> Floats:
    """Return the share of its records that each task of a stage has; every batch has the same."""
    shares = np.full(tasks, 1 / tasks)
    uneven = float(limit_skew(np.array([tasks]), skew)[0])
    if uneven:
        shares[:] = (1 - uneven / (tasks - 1)) / tasks
        shares[0] = (1 + uneven) / tasks
    return shares


def record_seconds(spec: SourceSpec | OperatorSpec, slots: int) -> float:
    """Return what a record costs one of so many slots that disturb each other."""
    seconds = spec.service_time or UNLIMITED_SERVICE
    if isinstance(spec, SourceSpec) or isinstance(spec.curve, Table):
        return seconds
    speed_up = float(spec.curve.scale_capacity(np.array([float(slots)]))[0])
    return seconds * slots / speed_up


def largest_rates(experiment: Experiment, most: int) -> Floats:
    """Return records per second of 0, 1, ... `most` executors whose batches end within the trigger.

    Where tasks scatter, 95 % of batches that are drawn once for all sizes have to: a mean that fits is
    exceeded by every other batch.
    """
    spec = experiment.scenario.batches
    assert spec is not None
    drawn = _draw_batches(experiment)
    rates = [0.0]
    for executors in range(1, most + 1):
        rates.append(_largest_rate(experiment, spec, executors * spec.cores, drawn, rates[-1]))
    return np.array(rates)


def _draw_batches(experiment: Experiment) -> list[list[Floats | None]]:
    """Draw by how much the tasks of some batches are longer than the mean task; one batch where none are."""
    specs = experiment.specs
    scatters = any(isinstance(s, OperatorSpec) and s.distribution.squared_variation for s in specs)
    randoms = [make_generator(0, ORACLE, number) for number in range(len(specs))]
    return [
        [
            spec.distribution.draw_factors(random, spec.tasks) if isinstance(spec, OperatorSpec) else None
            for spec, random in zip(specs, randoms, strict=True)
        ]
        for _ in range(DRAWN if scatters else 1)
    ]


def _largest_rate(
    experiment: Experiment, spec: BatchSpec, slots: int, drawn: list[list[Floats | None]], before: float
) -> float:
    """Search the largest rate from that of one executor less on."""
    even = np.ones(len(experiment.names))
    allowed, close = (MOST_LONGER, CLOSE_BY_CHANCE) if len(drawn) > 1 else (0, CLOSE)

    def fits(rate: float) -> bool:
        longer = 0
        for factors in drawn:
            stages = stage_executions(experiment, rate * spec.trigger, slots, factors, even)
            longer += spec.serial + sum(stage.wall_seconds for stage in stages) > spec.trigger
            if longer > allowed:
                return False
        return True

    if not fits(1e-9):
        return 1e-9
    low, step = (before, 1.5) if before > 1e-9 and fits(before) else (1e-9, 2.0)
    high = max(1.0, low * step) if low > 1e-9 else 1.0
    while fits(high):
        low, high = high, high * 2
        if high > 1e15:
            return high
    while high - low > close * high:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
