"""Faults of a made-up Spark in virtual time: executors and drivers die, stand still, or are slow."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from penstock.dataflow.metrics import Floats
from penstock.simulate.batches import VirtualBatches
from penstock_lab.experiments.faults.disturbances import Disturbance
from penstock_lab.experiments.faults.matrix import (
    BROKER_AWAY,
    DRIVER_FROZEN,
    DRIVER_KILLED,
    EXECUTOR_FROZEN,
    EXECUTOR_KILLED,
    EXECUTOR_SLOW,
    EXECUTOR_WITHOUT_MEMORY,
)

REPLACED_SECONDS = 15
"""How long an executor takes to come that Spark asks for at once in place of a lost one."""
DIES_EVERY = 20
"""An executor without enough memory dies again in the same task."""
STARTED_AGAIN_SECONDS = 20
"""How long a driver is away that died: whoever watches the job starts it again."""
SLOW = 0.1


class MadeUpSpark(Protocol):
    """An application whose executors and driver can be struck."""

    def lose_executor(self) -> None:
        """Let one executor die."""

    def bring_executor(self) -> None:
        """Let one come in place of a lost one."""

    def slow_down(self, share: float) -> None:
        """Let one executor do this share of its work from now on."""

    def end_driver(self) -> None:
        """Let the driver die with all its executors; what its batch has done is lost."""

    def start_driver(self) -> None:
        """Start the driver anew, from its checkpoint."""


class Strike:
    """What a fault of Spark does in each second."""

    def __init__(self, disturbance: Disturbance) -> None:
        self._disturbance, self._kind = disturbance, disturbance.fault
        self._struck_at: int | None = None
        self._due: list[int] = []
        self.driver_is_down = False

    def pass_second(self, now: int, spark: MadeUpSpark) -> bool:
        """Strike what is due in this second; return whether batches go on in it."""
        is_on, begins = self._disturbance.is_on, False
        if is_on and self._struck_at is None:
            self._struck_at, begins = now, True
        self._strike_driver(now, is_on, begins, spark)
        while self._due and self._due[0] <= now:
            self._due.pop(0)
            spark.bring_executor()
        if is_on and self._dies(now, begins):
            spark.lose_executor()
            self._due.append(now + REPLACED_SECONDS)
        if self._kind == EXECUTOR_SLOW:
            spark.slow_down(SLOW if is_on else 1.0)
        # without a broker there is nothing to read
        stands_still = is_on and self._kind in (EXECUTOR_FROZEN, BROKER_AWAY)
        return not (self.driver_is_down or stands_still)

    def _strike_driver(self, now: int, is_on: bool, begins: bool, spark: MadeUpSpark) -> None:
        if self._kind == DRIVER_FROZEN:
            self.driver_is_down = is_on
        if self._kind == DRIVER_KILLED and begins:
            self.driver_is_down = True
            spark.end_driver()
        if self._kind == DRIVER_KILLED and self._struck_at == now - STARTED_AGAIN_SECONDS:
            self.driver_is_down = False
            spark.start_driver()

    def _dies(self, now: int, begins: bool) -> bool:
        again = self._kind == EXECUTOR_WITHOUT_MEMORY and (now - (self._struck_at or 0)) % DIES_EVERY == 0
        return again or (self._kind == EXECUTOR_KILLED and begins)


class StruckBatches(VirtualBatches):
    """Micro-batches of which one may stand still, be lost, or have a slow or a dead executor."""

    stands_still = False
    share = 1.0
    """What one executor does of its work."""
    missing = 0
    """Executors that died and were not replaced yet."""

    def flow_on(self, until: int, stopped: bool) -> None:
        """Let batches run on; while they stand still the one under way gets longer, and none begins."""
        if not self.stands_still:
            super().flow_on(until, stopped)
            return
        if self._running is not None:
            (batch, age), lost = self._running, float(until - self.now)
            *before, last = batch.stages
            stages = (*before, replace(last, wall_seconds=last.wall_seconds + lost))
            self._running = replace(batch, stages=stages, seconds=batch.seconds + lost), age + lost
        self._clock = max(self._clock, float(until))
        for second in range(self.now, until):
            self._look(second, stopped=True)

    def take_over(self) -> None:
        """Let the change under way take effect; Spark was told how many there shall be in all."""
        super().take_over()
        self.missing = 0

    @property
    def shares(self) -> Floats | float:
        """The share of its capacity that each operator has now, one executor being slow."""
        return super().shares * (1 - (1 - self.share) / max(1, int(self.working[0])))

    def change_size(self, executors: int) -> None:
        """Add executors, or take them away, for a reason of Spark's own."""
        self.instances = self.instances + executors
        self._changed_at = float(self.now)
        self.forget_power()

    def begin_anew(self) -> None:
        """Forget the batch under way, and be as large as at the start."""
        if self._running is not None:
            batch, _ = self._running
            self._spread(batch.start, batch.start + batch.seconds, -batch.input_records)
            self._read -= batch.input_records
        self._running, self.wanted, self.missing = None, None, 0
        self.finished.clear()
        self.instances = self.experiment.initial.copy()
        self._changed_at = float(self.now)
        self.forget_power()
