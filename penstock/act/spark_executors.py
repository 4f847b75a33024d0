"""Executors of a running Spark application, added and released as `scaling.py` says.

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
from penstock.decide.outcome import Outcome
from penstock.decide.policy import Scale
from penstock.errors import ActionFailed, PenstockError, Unsupported
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
    ) -> None:
        """`state_bins` tells what a release would cost: executor → state bins, as last observed."""
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
        self._state_bins = state_bins
        self._outcome: Outcome | None = None

    def held(self) -> Mapping[str, int]:
        """What Spark reports now."""
        return {EXECUTORS: len(self._status.executors())}

    def begin(self, now: float, action: Scale) -> None:
        """Start the change; what it does from here on is told by `poll`."""
        self._change, self._outcome, self._stopped = None, None, ()
        if set(action.parallelism) != {EXECUTORS}:
            raise ActionFailed(f"Spark scales executors, not {sorted(action.parallelism)}")
        self._wanted = action.parallelism[EXECUTORS]
        self._batches_before = self._last_batches()
        self._perform(begin(now, self._wanted, self._executors(), self._patience))

    def poll(self, now: float) -> Outcome | None:
        """Go one step on; None while the change is under way."""
        if self._change is not None and self._outcome is None:
            self._perform(step(self._change, now, self._executors(), self._no_batch_needs_them()))
        return self._outcome

    def abandon(self) -> None:
        """Give up the change under way; executors that were told to stop are released, if Spark answers."""
        stopped = self._stopped if self._outcome is None else ()
        self._change, self._stopped = None, ()
        for instruction in abandon(self._wanted, stopped):
            try:
                self._instruct(instruction)
            except PenstockError as problem:
                _LOG.warning("a change was broken off, and its end failed: %s", problem)

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
            elif isinstance(instruction, Release):
                ids = self._jvm.java.util.ArrayList()
                for executor_id in instruction.executor_ids:
                    ids.add(executor_id)
                self._context.killExecutors(self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(ids))

    def _stop_using(self, executor_ids: tuple[str, ...]) -> None:
        """Decommission on the driver's side: it offers these executors no new tasks.

        With `spark.decommission.enabled` the executors also leave by themselves once they are idle;
        without it they ignore the message and wait to be released. Spark cannot take it back.
        """
        # before the call: when its answer is lost, it may have taken effect all the same
        self._stopped = executor_ids
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
