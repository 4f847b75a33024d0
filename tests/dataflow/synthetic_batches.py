"""Batches of a query whose true costs are known, with noise, stragglers and a slow first batch on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.dataflow.costs.model import makespan
from penstock.dataflow.metrics import BatchExecution, Floats, StageExecution


@dataclass(frozen=True)
class TrueStage:
    """`per_task` grows by `interference` of itself with every slot beyond five."""

    operator: str
    tasks: int
    per_task: float
    per_record: float
    selectivity: float = 1.0
    interference: float = 0.0
    skew: Floats | None = None

    def fixed_seconds(self, slots: int) -> float:
        return self.per_task * max(0.3, 1 + self.interference * (slots - 5))

    def shares(self) -> Floats:
        return np.full(self.tasks, 1 / self.tasks) if self.skew is None else self.skew / self.skew.sum()


@dataclass(frozen=True)
class TrueQuery:
    stages: tuple[TrueStage, ...]
    per_batch: float = 0.3
    noise: float = 0.0
    outliers: float = 0.0
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def seconds(self, records: float, slots: int) -> float:
        """Return the seconds of a batch without noise."""
        total = self.per_batch
        for stage in self.stages:
            tasks = stage.fixed_seconds(slots) + stage.per_record * records * stage.shares()
            total += makespan(tasks, slots)
            records *= stage.selectivity
        return total

    def run(self, batch_id: int, start: float, records: float, slots: int) -> BatchExecution:
        """One batch; noise multiplies task times, outliers are tasks that take three times as long."""
        flow, stages = records, []
        for stage in self.stages:
            stages.append(self._run_stage(stage, flow, slots))
            flow *= stage.selectivity
        seconds = self.per_batch * self._jitter(1)[0] + sum(stage.wall_seconds for stage in stages)
        return BatchExecution(batch_id, start, seconds, slots, records, tuple(stages))

    def runs(self, sizes: Sequence[float], slots: int, first_id: int = 0) -> tuple[BatchExecution, ...]:
        return tuple(
            self.run(first_id + number, 10.0 * (first_id + number), size, slots)
            for number, size in enumerate(sizes)
        )

    def _run_stage(self, stage: TrueStage, records: float, slots: int) -> StageExecution:
        taken = records * stage.shares()
        useful = (stage.fixed_seconds(slots) + stage.per_record * taken) * self._jitter(stage.tasks)
        useful = np.where(self.random.random(stage.tasks) < self.outliers, 3 * useful, useful)
        return StageExecution(
            operator=stage.operator,
            records_in=taken,
            records_out=taken * stage.selectivity,
            useful_seconds=useful,
            waiting_seconds=np.zeros(stage.tasks),
            wall_seconds=makespan(useful, slots),
        )

    def _jitter(self, count: int) -> Floats:
        return np.maximum(0.2, 1 + self.noise * self.random.standard_normal(count))


def word_count(noise: float = 0.0, outliers: float = 0.0, seed: int = 7) -> TrueQuery:
    """Three stages of 15 tasks: paced records, and fixed costs that grow with the slots at work."""
    stages = (
        TrueStage("flatmap", 15, 0.15, 0.0080, selectivity=20.0, interference=0.05),
        TrueStage("count", 15, 0.15, 0.0006, selectivity=0.05, interference=0.05),
        TrueStage("state", 15, 0.21, 0.0, selectivity=1.0, interference=0.2),
    )
    return TrueQuery(stages, 0.5, noise, outliers, np.random.default_rng(seed))
