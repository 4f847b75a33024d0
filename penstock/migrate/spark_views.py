"""The state of an application's running queries, as views that the planner understands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from penstock.dataflow.moves import Bin
from penstock.errors import SparkUnavailable
from penstock.migrate.bins import BinState, StateView, Worker
from penstock.migrate.spark_placement import SparkPlacement, StateStage
from penstock.observe.collector import StateTasks
from penstock.observe.spark_status import RunningQuery, SparkStatus, executor_state

Loads = Callable[[str], tuple[StateTasks, ...]]
"""Query id → the tasks of its stages with state, in the order in which they run."""


class SparkViews:
    """Reads where bins are, what they cost and how big they are; discovery is done once a run."""

    def __init__(self, spark: SparkSession, placement: SparkPlacement, loads: Loads) -> None:
        self.placement = placement
        self.status = SparkStatus(spark)
        self._loads = loads
        self._stages: dict[str, tuple[StateStage, ...]] = {}

    def workers(self) -> tuple[Worker, ...]:
        """List the executors that are there now."""
        states = [executor_state(one, {}) for one in self.status.executors()]
        return tuple(Worker(state.executor_id, state.host, state.cores) for state in states)

    def stages(self, query: RunningQuery) -> tuple[StateStage, ...]:
        """Find the query's stages with state; empty until its first batch has run."""
        known = self._stages.get(query.run_id, ())
        if not known:
            known = self._stages[query.run_id] = self.placement.stages(query)
        return known

    def views(self) -> tuple[StateView, ...]:
        """View all queries with state by the tasks that were observed, with no further call to Spark."""
        return tuple(
            view
            for query, stages in self._find_stateful()
            if (view := self._view_observed(query, stages)) is not None and view.bins
        )

    def full_views(self) -> tuple[StateView, ...]:
        """View all queries with state by the coordinator's word on places, and bytes from the checkpoint."""
        views = []
        for query, stages in self._find_stateful():
            observed = self._view_observed(query, stages)
            loads = {state.bin: state.load_seconds for state in observed.bins} if observed else {}
            views.append(self._view_asked(query, stages, loads))
        return tuple(views)

    def query(self, query_id: str) -> RunningQuery | None:
        """Find the running query of this id."""
        return next((one for one in self.status.queries() if one.query_id == query_id), None)

    def batch_seconds(self, query: RunningQuery, most: int) -> list[float]:
        """Return the seconds of the latest batches of a query, so many at most, oldest first."""
        reports = self.status.progress(query, 0.0, float("inf"), most)
        timings = [report.get("durationMs") or {} for report in reports]
        return [float(timing["triggerExecution"]) / 1000 for timing in timings if "addBatch" in timing]

    def newest_seconds(self, query: RunningQuery) -> float | None:
        """Return the seconds of the newest batch, also of an idle trigger; None before the first."""
        reports = self.status.progress(query, 0.0, float("inf"), 1)
        timing = (reports[-1].get("durationMs") or {}) if reports else None
        return None if timing is None else float(timing.get("triggerExecution", 0)) / 1000

    def _find_stateful(self) -> list[tuple[RunningQuery, tuple[StateStage, ...]]]:
        running = [query for query in self.status.queries() if not query.continuous]
        runs = {query.run_id for query in running}
        self._stages = {run: stages for run, stages in self._stages.items() if run in runs}
        found = []
        for query in running:
            try:
                stages = self.stages(query)
            except SparkUnavailable:
                if self.status.stopped():
                    raise
                continue  # the query ended while it was looked at
            if stages:
                found.append((query, stages))
        return found

    def _view_observed(self, query: RunningQuery, stages: tuple[StateStage, ...]) -> StateView | None:
        """Make a view of what the observer saw of the tasks; None where that does not fit the plan.

        Operator ids count from the sink, and stages run towards it: so they match in reverse.
        """
        tasks = self._loads(query.query_id)
        if len(tasks) != len(stages):
            return None
        bins: list[BinState] = []
        for stage, seen in zip(reversed(stages), tasks, strict=True):
            if len(seen.executors) != stage.partitions:
                return None
            for bin_, worker, seconds in zip(stage.bins(), seen.executors, seen.seconds, strict=True):
                bins.append(BinState(bin_, worker, load_seconds=seconds))
        return self._view(query, tuple(sorted(bins, key=lambda state: state.bin)))

    def _view_asked(
        self, query: RunningQuery, stages: tuple[StateStage, ...], loads: Mapping[Bin, float]
    ) -> StateView:
        bins: list[BinState] = []
        for stage in stages:
            at = self.placement.locations(stage)
            for bin_ in stage.bins():
                size = self.placement.measure_stored(stage, bin_).bytes
                bins.append(BinState(bin_, at.get(bin_), 0, size, loads.get(bin_, 0.0)))
        return self._view(query, _share_out_rows(bins, self._rows(query, stages)))

    def _rows(self, query: RunningQuery, stages: tuple[StateStage, ...]) -> Mapping[int, int]:
        """Return the rows of each stage; progress lists operators from the sink on, as ids count."""
        reports = self.status.progress(query, 0.0, float("inf"), 1)
        listed = reports[-1].get("stateOperators", []) if reports else []
        rows = {number: int(one.get("numRowsTotal") or 0) for number, one in enumerate(listed)}
        return {
            stage.operator: sum(rows.get(operator, 0) for operator in {one for one, _ in stage.stores})
            for stage in stages
        }

    def _view(self, query: RunningQuery, bins: tuple[BinState, ...]) -> StateView:
        return StateView(query.query_id, query.name, self.status.last_batch(query), bins, self.workers())


def _share_out_rows(bins: list[BinState], rows: Mapping[int, int]) -> tuple[BinState, ...]:
    """Share out the rows of an operator by bytes: Spark does not tell the rows of a bin."""
    sizes: dict[int, int] = {}
    for state in bins:
        sizes[state.bin.operator] = sizes.get(state.bin.operator, 0) + state.bytes
    counted = []
    for state in bins:
        total = sizes[state.bin.operator]
        share = state.bytes / total if total else 0.0
        counted.append(replace(state, rows=round(rows.get(state.bin.operator, 0) * share)))
    return tuple(counted)
