"""A source whose windows also tell what sizing needs: what executors use, and why some were lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, ExecutorState, ExecutorUse, NoBatchYet, SizingFacts
from penstock.decide.sage.sizes import SIZING_KEYS
from penstock.observe.executors.losses import Losses
from penstock.observe.executors.metrics import DRIVER, ExecutorBoard, name_namespace
from penstock.observe.executors.processes import list_processes, measure_executors
from penstock.observe.spark_status import SparkStatus, spark_errors

if TYPE_CHECKING:
    from penstock.observe.spark_source import SparkSource


class SizingSource:
    """Adds to the windows of another source what the rules on memory and CPU look at."""

    def __init__(self, inner: SparkSource, spark: SparkSession, board: ExecutorBoard | None) -> None:
        self._inner, self._board, self._losses = inner, board, Losses()
        self._status = SparkStatus(spark)
        self._application = str(spark.sparkContext.applicationId)
        conf = dict(spark.sparkContext.getConf().getAll())
        self._settings = {key: conf[key] for key in SIZING_KEYS if key in conf}
        with spark_errors("asking for the driver's memory"):
            self._runtime: Any = spark._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        self._cpu: dict[str, tuple[float, float]] = {}
        if board is not None:
            board.namespace = name_namespace(conf, self._application)

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        """The window with what was used in it, also while the first batch has not ended."""
        seen = self._inner.observe(now)
        if isinstance(seen, NoBatchYet):
            return replace(seen, window=self._with_facts(seen.window))
        return seen if isinstance(seen, NotReady) else self._with_facts(seen)

    def _with_facts(self, window: ApplicationWindow) -> ApplicationWindow:
        heap, killed = self._losses.counts(self._status.lost_executors(), window.start, window.end)
        with spark_errors("asking for the driver's memory"):
            driver = float(self._runtime.totalMemory() - self._runtime.freeMemory())
        facts = SizingFacts(self._settings, driver, heap, killed)
        return replace(window, executors=self._with_use(window), sizing=facts)

    def _with_use(self, window: ApplicationWindow) -> tuple[ExecutorState, ...]:
        if self._board is None:
            return window.executors
        self._board.forget_others(frozenset(one.executor_id for one in window.executors))
        here = self._here(window.end)
        return tuple(replace(one, use=self._use(one, window, here)) for one in window.executors)

    def _use(
        self, executor: ExecutorState, window: ApplicationWindow, here: dict[str, tuple[float, float]]
    ) -> ExecutorUse | None:
        assert self._board is not None
        # without executor processes the driver's JVM does the work, and its heap is not an executor's setting
        found = self._board.use(executor.executor_id, window.start, window.end)
        if found is None or executor.executor_id == DRIVER or executor.executor_id not in here:
            return found if executor.executor_id != DRIVER else None
        cores, resident = here[executor.executor_id]
        return replace(found, cpu_cores=cores, resident_bytes=resident)

    def _here(self, now: float) -> dict[str, tuple[float, float]]:
        """Return executor on this machine → cores used since the last window, and resident bytes."""
        trees = measure_executors(list_processes(), self._application)
        before, self._cpu = self._cpu, {name: (now, tree.cpu_seconds) for name, tree in trees.items()}
        return {
            name: (
                max(0.0, tree.cpu_seconds - before[name][1]) / (now - before[name][0]),
                tree.resident_bytes,
            )
            for name, tree in trees.items()
            if name in before and now > before[name][0]
        }
