"""A pipeline at work while this process leads: its queries, what is seen of them, and the loop over both."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import ExpectedEffect, Scale
from penstock.errors import ActionFailed, PenstockError
from penstock.loop import Cycle, Loop
from penstock.pipeline.board import Board
from penstock.pipeline.definition import Pipeline
from penstock.pipeline.layout import Layout
from penstock.pipeline.monitor import BatchDone, Monitor
from penstock.pipeline.sizes import SizeMemory
from penstock.pipeline.spark_existing import ExistingQuery
from penstock.pipeline.spark_query import FunctionQuery
from penstock.pipeline.spark_readings import OutsideReadings

log = logging.getLogger(__name__)

Queries = Mapping[str, FunctionQuery | ExistingQuery]


class Term:
    """From the start of all queries to their stop; stepped by one thread, asked by any."""

    def __init__(
        self,
        pipeline: Pipeline,
        queries: Queries,
        board: Board,
        monitor: Monitor,
        loop: Loop,
        sizes: SizeMemory,
        executors_follow: bool = False,
        close: Callable[[], None] | None = None,
    ) -> None:
        self.queries = queries
        self._pipeline, self._layout = pipeline, pipeline.layout()
        self._board, self._monitor, self._loop, self._sizes = board, monitor, loop, sizes
        self._asked = board.wanted() if executors_follow else {}
        self._close = close
        self._why = "executors follow the sum of instances"
        self._lock = threading.Lock()

    def tick(self, now: float) -> Cycle:
        """Start again what was broken off, do what was asked for by hand, then one cycle of the loop."""
        for query in self.queries.values():
            if isinstance(query, FunctionQuery):
                query.mend(now)
        self._order()
        cycle = self._loop.tick(now)
        self._sizes.keep(now, self._board)
        return cycle

    def scale(self, function: str, parallelism: int | None) -> int:
        """Pin a function, from its next batch on, or give it back."""
        size = self._board.pin(function, parallelism)
        if parallelism is not None:
            with self._lock:
                self._asked[function], self._why = size, "set by hand"
        return size

    def _order(self) -> None:
        """Have the loop record what was asked for, and let executors and state follow it."""
        with self._lock:
            asked = dict(self._asked)
        if not asked or self._loop.actuator is None:
            return
        try:
            self._loop.order(Scale(asked, self._why, ExpectedEffect("as whoever asked for it expects")))
        except ActionFailed:
            return  # another action is under way; the sizes hold already, and the rest comes after it
        with self._lock:
            self._asked = {name: size for name, size in self._asked.items() if asked.get(name) != size}

    @property
    def gone(self) -> bool:
        """Whether Spark itself was stopped."""
        return all(isinstance(one, FunctionQuery) and one.spark_is_gone() for one in self.queries.values())

    def batches(self, function: str) -> tuple[BatchDone, ...]:
        """The newest batches of a function."""
        return self._monitor.batches(function)

    def failures(self) -> list[str]:
        """Why functions no longer run, each with its name."""
        return [f"{name}: {why}" for name, query in self.queries.items() if (why := query.failure())]

    def decisions(self) -> list[dict[str, Any]]:
        """What was decided lately."""
        return [asdict(one) for one in self._loop.timeline.decisions[-10:]]

    def function(self, name: str) -> dict[str, Any]:
        """How a function stands, as plain data."""
        figures, query = self._monitor.figures().get(name), self.queries[name]
        least, most = self._board.limits[name]
        return {
            **plain_function(self._pipeline, self._layout, name),
            "parallelism": self._board.in_effect()[name],
            "least": least,
            "most": most,
            "pinned": name in self._board.pinned(),
            **self._monitor.counted(name),
            **(asdict(figures) if figures is not None else self._monitor.served(name)),
            "restarts": query.mending.restarts if isinstance(query, FunctionQuery) else 0,
            "trouble": query.trouble() if isinstance(query, FunctionQuery) else None,
            "at_batch_seconds": (
                query.at_batch_seconds(time.time()) if isinstance(query, FunctionQuery) else None
            ),
            "error": query.failure(),
        }

    def leave(self) -> None:
        """Close what the loop has open; the queries run on."""
        self._loop.leave(time.time())

    def stop(self) -> None:
        """Stop all queries, each between two batches."""
        stoppers = [threading.Thread(target=one.stop, daemon=True) for one in self.queries.values()]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join()
        if self._close is not None:
            try:
                self._close()
            except PenstockError as problem:
                log.warning("%s: %s", self._pipeline.name, problem)


def plain_function(pipeline: Pipeline, layout: Layout, name: str) -> dict[str, Any]:
    """What is known of a function before it runs."""
    return {
        "reads": list(layout.reads[name]),
        "writes": layout.writes[name],
        "latency_target": pipeline.functions[name].latency_target,
    }


class PipelineSource:
    """The windows that the loop sees of a pipeline."""

    def __init__(
        self, board: Board, monitor: Monitor, readings: OutsideReadings, existing: Sequence[ExistingQuery]
    ) -> None:
        self._board, self._monitor, self._readings, self._existing = board, monitor, readings, existing
        self._last = time.time()

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        """The window since the last one."""
        for one in self._existing:
            one.poll()
        readings = self._readings.read(self._last, now)
        seen = self._monitor.observe(now, self._board.sizes(), readings)
        if isinstance(seen, ApplicationWindow):
            self._last = now
        return seen
