"""Everything that is asked of the JVM about a running application.

Private to Spark and therefore kept in this one file; seen to work on Spark 4.3. What Spark answers is
turned into JSON inside the JVM, so that a stage costs one call, however many tasks it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import orjson
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.dataflow.window import ExecutorState
from penstock.errors import SparkUnavailable
from penstock.observe.progress import SourceProgress
from penstock.observe.running import BegunBatch
from penstock.observe.stages import StageOutline, parse_outline

Answer = TypeVar("Answer")

_CLOCK_SLACK_SECONDS = 5.0
"""The driver's Python and Java read one clock, though not at the same moment."""


MICRO_BATCHES = "micro-batches"
_MODES = {"ContinuousTrigger": "continuous mode", "RealTimeTrigger": "real-time mode"}


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """One active streaming query, with the JVM object behind it.

    A `single_run` ends by itself when it has read what is there.
    """

    query_id: str
    run_id: str
    name: str
    period_seconds: float | None
    mode: str
    execution: Any
    single_run: bool = False

    @property
    def continuous(self) -> bool:
        """Whether its tasks run on and on, all at once, rather than batch after batch."""
        return self.mode != MICRO_BATCHES


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Translate what Py4J, PySpark and the connection raise; any other error is our own and passes."""
    try:
        yield
    except (Py4JError, PySparkException, ConnectionError, TimeoutError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SparkUnavailable(f"Spark did not answer while {doing}: {text}") from error


def java_context(spark: SparkSession) -> Any:
    """Return the JVM's Spark context; SparkUnavailable once the session has been stopped."""
    context: Any = spark.sparkContext._jsc
    if context is None:
        raise SparkUnavailable("this Spark session has been stopped")
    with spark_errors("looking for its context"):
        return context.sc()


class SparkStatus:
    """Reads the status store, the streaming queries and their plans of one application."""

    def __init__(self, spark: SparkSession) -> None:
        with spark_errors("opening its status store"):
            jvm: Any = spark._jvm
            self._jvm = jvm
            self._context: Any = java_context(spark)
            self._store: Any = self._context.statusStore()
            self._mapper: Any = self._jvm.com.fasterxml.jackson.databind.ObjectMapper()
            module = getattr(self._jvm.com.fasterxml.jackson.module.scala, "DefaultScalaModule$")
            self._mapper.registerModule(getattr(module, "MODULE$"))
            self._active: Any = spark._jsparkSession.sharedState().activeStreamingQueries()
            self._listed: tuple[str, tuple[RunningQuery, ...]] = ("", ())
            self._graphs: Any = getattr(self._jvm.org.apache.spark.ui.scope, "RDDOperationGraph$")

    def to_json(self, value: Any) -> Any:
        """Return a Java or Scala value as plain data."""
        return orjson.loads(self._mapper.writeValueAsString(value))

    def _ask(self, doing: str, call: Callable[[], Answer]) -> Answer:
        with spark_errors(doing):
            return call()

    def stopped(self) -> bool:
        """Whether the Spark context has ended."""
        return self._ask("asking whether it runs", lambda: bool(self._context.isStopped()))

    def executors(self) -> list[dict[str, Any]]:
        """Return the active executors, without the driver, unless it runs the tasks itself (local mode)."""
        with spark_errors("listing executors"):
            local = bool(self._context.isLocal())
            listed = self.to_json(self._store.executorList(True))
        return [executor for executor in listed if local or executor["id"] != "driver"]

    def lost_executors(self) -> list[dict[str, Any]]:
        """Executors that are gone, with the reason; Spark keeps a bounded number."""
        with spark_errors("listing lost executors"):
            listed = self.to_json(self._store.executorList(False))
        return [executor for executor in listed if not executor["isActive"]]

    def queries(self) -> list[RunningQuery]:
        """Active streaming queries of all sessions of the application.

        Their text names every query and run, so that one call shows whether anything has changed: looking at
        each anew was half of what a cycle took in the driver's JVM.
        """
        with spark_errors("listing streaming queries"):
            text = str(self._active.toString())
            if text != self._listed[0] or text.count("runId = ") != len(self._listed[1]):
                queries = tuple(self._query(execution) for execution in list(self._active.values()))
                self._listed = text, queries
            return list(self._listed[1])

    def _query(self, execution: Any) -> RunningQuery:
        trigger = execution.trigger()
        kind = str(trigger.getClass().getSimpleName()).rstrip("$")
        milliseconds = trigger.intervalMs() if kind == "ProcessingTimeTrigger" else 0
        query_id = execution.id().toString()
        return RunningQuery(
            query_id=query_id,
            run_id=execution.runId().toString(),
            name=execution.name() or query_id,
            period_seconds=milliseconds / 1000 if milliseconds > 0 else None,
            mode=_MODES.get(kind, MICRO_BATCHES),
            execution=execution,
            single_run=kind in ("AvailableNowTrigger", "OneTimeTrigger"),
        )

    def progress(self, query: RunningQuery, after: float, now: float, at_most: int) -> list[dict[str, Any]]:
        """Progress reports newer than the one whose trigger started at `after`, oldest first.

        What seems to have started after `now` is from before the clock went back, and is left out.
        """
        with spark_errors("reading progress"):
            reports = query.execution.recentProgress()
            fresh: list[dict[str, Any]] = []
            for number in range(len(reports) - 1, max(-1, len(reports) - 1 - at_most), -1):
                report = orjson.loads(reports[number].json())
                if _timestamp(report) <= after:
                    break
                if _timestamp(report) <= now + _CLOCK_SLACK_SECONDS:
                    fresh.append(report)
            return fresh[::-1]

    def last_batch(self, query: RunningQuery) -> int:
        """Return the newest batch that the query has reported; -1 before the first."""
        with spark_errors("reading progress"):
            report = query.execution.lastProgress()
            return -1 if report is None else int(report.batchId())

    def begun_batch(self, query: RunningQuery) -> BegunBatch:
        """Return what the sources said as the newest batch began; its report comes when it ends."""
        with spark_errors("reading the offsets of a running batch"):
            context = query.execution.getLatestExecutionContext()
            sources = query.execution.sources()
            return BegunBatch(
                batch_id=int(context.batchId()),
                at=context.offsetSeqMetadata().batchTimestampMs() / 1000,
                sources=tuple(_read_source(context, sources.apply(n)) for n in range(sources.size())),
            )

    def is_working(self, query: RunningQuery) -> bool:
        """Whether a batch of the query is running at this moment."""
        return self._ask(
            "asking for a query's state", lambda: bool(query.execution.status().isTriggerActive())
        )

    def jobs_after(self, job_id: int) -> list[dict[str, Any]]:
        """Jobs that are newer than `job_id`, newest first; Spark keeps a bounded number."""
        with spark_errors("listing jobs"):
            jobs = self._store.jobsList(None)
            fresh: list[dict[str, Any]] = []
            for number in range(jobs.size()):
                job = jobs.apply(number)
                if job.jobId() <= job_id:
                    break
                fresh.append(self.to_json(job))
            return fresh

    def job(self, job_id: int) -> dict[str, Any]:
        """Return one job as it is now."""
        with spark_errors("reading a job"):
            found: dict[str, Any] = self.to_json(self._store.job(job_id))
            return found

    def tasks(self, stage_id: int, at_most: int) -> list[dict[str, Any]]:
        """Return the tasks of the stage's first attempt."""
        return self._ask(
            "reading tasks", lambda: list(self.to_json(self._store.taskList(stage_id, 0, at_most)))
        )

    def stage(self, stage_id: int) -> dict[str, Any]:
        """Return the newest attempt of a stage: its state, and how many tasks it has, runs and has done."""
        with spark_errors("reading a stage"):
            found: dict[str, Any] = self.to_json(self._store.lastStageAttempt(stage_id))
            return found

    def outline(self, stage_id: int) -> StageOutline:
        """Return what the stage is made of."""
        with spark_errors("reading a stage's operations"):
            graph = self._store.operationGraphForStage(stage_id)
            dot = getattr(self._graphs, "MODULE$").makeDotFile(graph)
            return parse_outline(dot, self.to_json(graph.incomingEdges()))

    def plan(self, query: RunningQuery) -> str:
        """Return the physical plan of the query's newest batch, as text."""
        with spark_errors("reading the plan"):
            execution = query.execution.lastExecution()
            if execution is None:
                raise SparkUnavailable(f"{query.name} has planned no batch yet")
            return str(execution.executedPlan().toString())


def _read_source(context: Any, source: Any) -> SourceProgress:
    return SourceProgress(
        description=str(source.toString()),
        start_offset=None,
        end_offset=_read_offset(context.endOffsets().get(source)),
        latest_offset=_read_offset(context.latestOffsets().get(source)),
        input_records=0.0,
    )


def _read_offset(found: Any) -> Any:
    """Return an optional offset as plain data; None where the source has none, or writes no JSON."""
    try:
        return orjson.loads(found.get().json()) if found.isDefined() else None
    except orjson.JSONDecodeError:
        return None


def _timestamp(report: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(report["timestamp"]).timestamp()


def executor_state(executor: Mapping[str, Any], bins: Mapping[str, int]) -> ExecutorState:
    """Return one executor as Spark lists it; `bins`: executor → state bins that it hosts."""
    peak = executor.get("peakMemoryMetrics") or {}
    name = str(executor["id"])
    return ExecutorState(
        executor_id=name,
        host=str(executor["hostPort"]).rsplit(":", 1)[0],
        cores=int(executor["maxTasks"]),
        active_tasks=int(executor["activeTasks"]),
        memory_bytes=int(executor["maxMemory"]),
        heap_used_bytes=int(peak.get("JVMHeapMemory", 0)),
        gc_seconds=executor["totalGCTime"] / 1000,
        cached_bytes=int(executor["memoryUsed"]) + int(executor["diskUsed"]),
        state_bins=bins.get(name, 0),
    )
