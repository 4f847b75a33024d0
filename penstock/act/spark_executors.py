"""The executors of a running Spark application, listed, requested, stopped and released.

The calls are Spark's own and private; seen to work on Spark 4.3 with local-cluster and standalone, and
the same on YARN and Kubernetes by reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from penstock.act.actuator import QueryBatches
from penstock.dataflow.window import ExecutorState
from penstock.errors import ActionFailed, Unsupported
from penstock.observe.spark_session import can_change_executors, check_supported
from penstock.observe.spark_status import SparkStatus, executor_state, java_context, spark_errors


class SparkExecutors:
    """The pool of executors of one application."""

    def __init__(self, spark: SparkSession) -> None:
        check_supported(spark)
        obstacle = can_change_executors(spark)
        if obstacle is not None:
            raise Unsupported(obstacle)
        self._gateway: Any = spark.sparkContext._gateway
        self._jvm: Any = spark._jvm
        self._context: Any = java_context(spark)
        self._status = SparkStatus(spark)

    def executors(self, bins: Mapping[str, int]) -> tuple[ExecutorState, ...]:
        """List the active executors; `bins`: executor → state bins that it hosts."""
        return tuple(executor_state(executor, bins) for executor in self._status.executors())

    def request_total(self, total: int) -> None:
        """Ask the cluster manager for so many executors in all."""
        with spark_errors(f"asking for {total} executors"):
            nobody: Any = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(
                self._jvm.java.util.HashMap()
            )
            agreed = self._context.requestTotalExecutors(total, 0, nobody)
        if not agreed:
            raise ActionFailed(f"the cluster manager refused a total of {total} executors")

    def stop_using(self, executor_ids: Sequence[str]) -> None:
        """Decommission on the driver's side: it offers these executors no new tasks.

        With `spark.decommission.enabled` the executors also leave by themselves once they are idle;
        without it they ignore the message and wait to be released. Spark cannot take it back.
        """
        with spark_errors(f"giving executors {', '.join(executor_ids)} no more tasks"):
            info = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
                "released by Penstock", self._jvm.scala.Option.empty()
            )
            pairs = self._gateway.new_array(self._jvm.scala.Tuple2, len(executor_ids))
            for number, executor_id in enumerate(executor_ids):
                pairs[number] = self._jvm.scala.Tuple2(executor_id, info)
            self._context.schedulerBackend().decommissionExecutors(pairs, False, False)

    def release(self, executor_ids: Sequence[str]) -> None:
        """Have Spark end these executors."""
        with spark_errors(f"releasing executors {', '.join(executor_ids)}"):
            ids = self._jvm.java.util.ArrayList()
            for executor_id in executor_ids:
                ids.add(executor_id)
            self._context.killExecutors(self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(ids))

    def batches(self) -> Mapping[str, QueryBatches]:
        """Return run → how far it is, for all running queries."""
        return {
            query.run_id: QueryBatches(self._status.last_batch(query), self._status.is_working(query))
            for query in self._status.queries()
        }
