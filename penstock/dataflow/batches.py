"""What one micro-batch did: its serial part, and for each stage its tasks as columns."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.dataflow.metrics import Floats


@dataclass(frozen=True, slots=True)
class StageExecution:
    """One operator's stage in one batch; a column holds a value per task, in task order."""

    operator: str
    records_in: Floats
    records_out: Floats
    useful_seconds: Floats
    waiting_seconds: Floats
    wall_seconds: float

    @property
    def tasks(self) -> int:
        """How many tasks the stage had."""
        return len(self.records_in)


@dataclass(frozen=True, slots=True)
class BatchExecution:
    """One finished micro-batch of one query, with the slots it could use.

    Not `settled`: executors came or went while it ran, or had just come and were still warming up, so
    that its times tell nothing about any slot count.
    """

    batch_id: int
    start: float
    seconds: float
    slots: int
    input_records: float
    stages: tuple[StageExecution, ...]
    settled: bool = True

    @property
    def serial_seconds(self) -> float:
        """What no slot can shorten: planning, offset log, commit, gaps between stages."""
        return max(0.0, self.seconds - sum(stage.wall_seconds for stage in self.stages))
