"""Executors of a running Spark application, added and released as `scaling.py` says, and their state moved.

The calls are Spark's own and private; seen to work on Spark 4.3 with local-cluster and standalone, and
the same on YARN and Kubernetes by reading.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from penstock.act.scaling import (
    ExecutorChange,
    Instruction,
    MoveAway,
    Patience,
    Progress,
    Release,
    RequestTotal,
    StopUsing,
    abandon,
    begin,
    step,
)
from penstock.dataflow.window import EXECUTORS, ExecutorState
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import BINS, Action, MoveState
from penstock.errors import ActionFailed, PenstockError, Unsupported
from penstock.migrate.spark_mover import SparkMover
from penstock.observe.spark_session import can_change_executors, check_supported
from penstock.observe.spark_status import SparkStatus, executor_state, spark_errors
from penstock.settings import Settings

_LOG = logging.getLogger(__name__)


class SparkActuator:
    """Performs one executor change at a time, a step a poll."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        state_bins: Callable[[], Mapping[str, int]] = dict,
        mover: SparkMover | None = None,
    ) -> None:
        """`state_bins` tells what a release would cost: executor → state bins, as last observed.

        With a `mover` state leaves an executor before it is released.
        """
        check_supported(spark)
        obstacle = can_change_executors(spark)
        if obstacle is not None:
            raise Unsupported(obstacle)
        self._gateway: Any = spark.sparkContext._gateway
        self._jvm: Any = spark._jvm
        self._context: Any = spark.sparkContext._jsc.sc()
        self._status = SparkStatus(spark)
        self._patience = Patience(settings.executor_timeout, settings.drain_timeout)
        self._change: ExecutorChange | None = None
        self._wanted = 0
        self._stopped: tuple[str, ...] = ()
        self._batches_before: dict[str, int] = {}
        self._state_bins, self._mover = state_bins, mover
        self._outcome: Outcome | None = None
        self._move: tuple[float, MoveState] | None = None
        self._stayed = ""

    def held(self) -> Mapping[str, int]:
        """What Spark reports now."""
        return {EXECUTORS: len(self._status.executors())}

    def begin(self, now: float, action: Action) -> None:
        """Start the change; what it does from here on is told by `poll`."""
        self._change, self._outcome, self._stopped, self._move = None, None, (), None
        self._stayed = ""
        if isinstance(action, MoveState):
            self._begin_move(now, action)
            return
        if set(action.parallelism) != {EXECUTORS}:
            raise ActionFailed(f"Spark scales executors, not {sorted(action.parallelism)}")
        self._wanted = action.parallelism[EXECUTORS]
        can_move = self._mover is not None and self._mover.obstacle() is None
        self._perform(begin(now, self._wanted, self._executors(), self._patience, can_move))

    def poll(self, now: float) -> Outcome | None:
        """Go one step on; None while the change is under way."""
        if self._move is not None:
            return self._poll_move(now, *self._move)
        if self._change is not None and self._outcome is None:
            moving = self._mover is not None and self._mover.moving()
            stayed = "" if moving else self._why_state_stayed()
            boundary = self._no_batch_needs_them()
            self._perform(step(self._change, now, self._executors(), boundary, moving, stayed))
        return self._outcome

    def abandon(self) -> None:
        """Give up the change under way; executors that were told to stop are released, if Spark answers."""
        stopped = self._stopped if self._outcome is None else ()
        self._change, self._stopped, self._move = None, (), None
        if self._mover is not None:
            self._mover.stop("the autopilot gave the action up")
        for instruction in abandon(self._wanted, stopped):
            try:
                self._instruct(instruction)
            except PenstockError as problem:
                _LOG.warning("a change was broken off, and its end failed: %s", problem)

    def _begin_move(self, now: float, action: MoveState) -> None:
        if self._mover is None:
            raise ActionFailed("state cannot be moved here")
        self._mover.begin(action.plans)
        self._move = (now, action)

    def _poll_move(self, now: float, begun: float, action: MoveState) -> Outcome | None:
        ended = self._mover.ended() if self._mover is not None else None
        if ended is None:
            return None
        self._move = None
        status, moved, detail = ended
        seconds = max(0.0, now - begun)
        return Outcome(status, action.planned, action.planned, {BINS: moved}, seconds, detail)

    def _perform(self, progress: Progress) -> None:
        for instruction in progress.instructions:
            _LOG.debug("performing %s", instruction)
            self._instruct(instruction)
        self._change, self._outcome = progress.change, progress.outcome

    def _instruct(self, instruction: Instruction) -> None:
        with spark_errors(f"performing {instruction}"):
            if isinstance(instruction, RequestTotal):
                nobody: Any = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(
                    self._jvm.java.util.HashMap()
                )
                if not self._context.requestTotalExecutors(instruction.total, 0, nobody):
                    raise ActionFailed(
                        f"the cluster manager refused a total of {instruction.total} executors"
                    )
            elif isinstance(instruction, StopUsing):
                self._stop_using(instruction.executor_ids)
            elif isinstance(instruction, MoveAway) and self._mover is not None:
                self._move_away(self._mover, instruction.executor_ids)
            elif isinstance(instruction, Release):
                ids = self._jvm.java.util.ArrayList()
                for executor_id in instruction.executor_ids:
                    ids.add(executor_id)
                self._context.killExecutors(self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(ids))

    def _move_away(self, mover: SparkMover, executor_ids: tuple[str, ...]) -> None:
        """A drain that cannot begin costs a slow batch later, not the change."""
        try:
            mover.drain(executor_ids)
        except PenstockError as problem:
            _LOG.warning("state stays where it is: %s", problem)
            self._stayed = str(problem)

    def _why_state_stayed(self) -> str:
        """Why the last drain left something behind; empty if it did not, or if there was none."""
        ended = self._mover.ended() if self._mover is not None and not self._stayed else None
        return ended[2] if ended is not None and ended[0] is not Status.DONE else self._stayed

    def _stop_using(self, executor_ids: tuple[str, ...]) -> None:
        """Decommission on the driver's side: it offers these executors no new tasks.

        With `spark.decommission.enabled` the executors also leave by themselves once they are idle;
        without it they ignore the message and wait to be released. Spark cannot take it back.
        """
        # before the call: when its answer is lost, it may have taken effect all the same
        self._stopped = executor_ids
        self._batches_before = self._last_batches()
        info = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
            "released by Penstock", self._jvm.scala.Option.empty()
        )
        pairs = self._gateway.new_array(self._jvm.scala.Tuple2, len(executor_ids))
        for number, executor_id in enumerate(executor_ids):
            pairs[number] = self._jvm.scala.Tuple2(executor_id, info)
        self._context.schedulerBackend().decommissionExecutors(pairs, False, False)

    def _executors(self) -> tuple[ExecutorState, ...]:
        bins = self._state_bins()
        return tuple(executor_state(executor, bins) for executor in self._status.executors())

    def _last_batches(self) -> dict[str, int]:
        return {query.run_id: self._status.last_batch(query) for query in self._status.queries()}

    def _no_batch_needs_them(self) -> bool:
        """Whether every batch that was running when the change began has ended.

        A later batch has put no shuffle data on executors that get no tasks, so losing them costs it nothing.
        """
        return all(
            not self._status.is_working(query)
            or self._status.last_batch(query) > self._batches_before.get(query.run_id, -2)
            for query in self._status.queries()
        )
