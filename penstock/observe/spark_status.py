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
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from penstock.dataflow.window import ExecutorState
from penstock.errors import SparkUnavailable
from penstock.observe.stages import StageOutline, parse_outline

Answer = TypeVar("Answer")

_CLOCK_SLACK_SECONDS = 5.0
"""The driver's Python and Java read one clock, though not at the same moment."""
_DEEPEST_DIRECTORIES = 8


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """One active streaming query, with the JVM object behind it."""

    query_id: str
    run_id: str
    name: str
    period_seconds: float | None
    continuous: bool
    execution: Any


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Translate what Py4J raises; a driver that is gone is not an error of the user's."""
    try:
        yield
    except (Py4JError, Py4JNetworkError, ConnectionError, OSError, AttributeError, TypeError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SparkUnavailable(f"Spark did not answer while {doing}: {text}") from error


class SparkStatus:
    """Reads the status store, the streaming queries and their plans of one application."""

    def __init__(self, spark: SparkSession) -> None:
        with spark_errors("opening its status store"):
            jvm: Any = spark._jvm
            self._jvm = jvm
            self._context: Any = spark.sparkContext._jsc.sc()
            self._store: Any = self._context.statusStore()
            self._mapper: Any = self._jvm.com.fasterxml.jackson.databind.ObjectMapper()
            module = getattr(self._jvm.com.fasterxml.jackson.module.scala, "DefaultScalaModule$")
            self._mapper.registerModule(getattr(module, "MODULE$"))
            self._active: Any = spark._jsparkSession.sharedState().activeStreamingQueries()
            self._listed: tuple[str, tuple[RunningQuery, ...]] = ("", ())
            self._graphs: Any = getattr(self._jvm.org.apache.spark.ui.scope, "RDDOperationGraph$")

    def _json(self, value: Any) -> Any:
        return orjson.loads(self._mapper.writeValueAsString(value))

    def _ask(self, doing: str, call: Callable[[], Answer]) -> Answer:
        with spark_errors(doing):
            return call()

    def stopped(self) -> bool:
        """Whether the Spark context has ended."""
        return self._ask("asking whether it runs", lambda: bool(self._context.isStopped()))

    def executors(self) -> list[dict[str, Any]]:
        """The active executors, without the driver, unless it runs the tasks itself (local mode)."""
        with spark_errors("listing executors"):
            local = bool(self._context.isLocal())
            listed = self._json(self._store.executorList(True))
        return [executor for executor in listed if local or executor["id"] != "driver"]

    def lost_executors(self) -> list[dict[str, Any]]:
        """Executors that are gone, with the reason; Spark keeps a bounded number."""
        with spark_errors("listing lost executors"):
            listed = self._json(self._store.executorList(False))
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
        kind = trigger.getClass().getSimpleName()
        milliseconds = trigger.intervalMs() if kind == "ProcessingTimeTrigger" else 0
        query_id = execution.id().toString()
        return RunningQuery(
            query_id=query_id,
            run_id=execution.runId().toString(),
            name=execution.name() or query_id,
            period_seconds=milliseconds / 1000 if milliseconds > 0 else None,
            continuous=kind in ("ContinuousTrigger", "RealTimeTrigger"),
            execution=execution,
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
        """The newest batch that the query has reported; -1 before the first."""
        with spark_errors("reading progress"):
            report = query.execution.lastProgress()
            return -1 if report is None else int(report.batchId())

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
                fresh.append(self._json(job))
            return fresh

    def tasks(self, stage_id: int, at_most: int) -> list[dict[str, Any]]:
        """The tasks of the stage's first attempt."""
        return self._ask(
            "reading tasks", lambda: list(self._json(self._store.taskList(stage_id, 0, at_most)))
        )

    def outline(self, stage_id: int) -> StageOutline:
        """What the stage is made of."""
        with spark_errors("reading a stage's operations"):
            graph = self._store.operationGraphForStage(stage_id)
            dot = getattr(self._graphs, "MODULE$").makeDotFile(graph)
            return parse_outline(dot, self._json(graph.incomingEdges()))

    def plan(self, query: RunningQuery) -> str:
        """The physical plan of the query's newest batch, as text."""
        return self._ask(
            "reading the plan", lambda: str(query.execution.lastExecution().executedPlan().toString())
        )

    def unread_files(self, query: RunningQuery, description: str) -> tuple[int, int]:
        """(files present and not yet read, files read) of the file source so described; (0, 0) if none is."""
        with spark_errors("listing a file source"):
            leaves = query.execution.logicalPlan().collectLeaves()
            for number in range(leaves.size()):
                leaf = leaves.apply(number)
                # static tables are leaves too, and have no source
                if leaf.getClass().getSimpleName() != "StreamingExecutionRelation":
                    continue
                files = leaf.source()
                if files.toString() == description:
                    read = int(files.seenFiles().size())
                    present = self._count_files(description[len("FileStreamSource[") : -1])
                    return max(0, present - read), read
            return 0, 0

    def _count_files(self, path: str) -> int:
        """Files at a path that may hold wild cards, or in the directories there; hidden ones do not count.

        Directories are laid out evenly (by date, by partition), so the first entry tells for all.
        """
        paths: Any = self._jvm.org.apache.hadoop.fs.Path
        pattern = paths(path)
        system = pattern.getFileSystem(self._context.hadoopConfiguration())
        for _ in range(_DEEPEST_DIRECTORIES):
            found = system.globStatus(pattern) or []
            if not len(found) or not found[0].isDirectory():
                return len(found)
            pattern = paths(pattern, "[^._]*")
        return 0


def _timestamp(report: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(report["timestamp"]).timestamp()


def executor_state(executor: Mapping[str, Any], bins: Mapping[str, int]) -> ExecutorState:
    """One executor as Spark lists it; `bins`: executor → state bins that it hosts."""
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
