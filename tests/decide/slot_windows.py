"""Windows of queries that share slots, and a cluster that runs a query whose true costs are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import BatchExecution
from penstock.dataflow.window import EXECUTORS, ExecutorState, SlotQuery, SlotWindow, SourceRate
from tests.dataflow.synthetic_batches import TrueQuery

PERIOD = 10.0


def chain(query: TrueQuery) -> LogicalGraph:
    names = [stage.operator for stage in query.stages]
    return LogicalGraph(names, pairwise(names))


def query_window(
    graph: LogicalGraph,
    batches: tuple[BatchExecution, ...],
    offered: Mapping[str, float],
    backlog: float = 0.0,
    period: float | None = PERIOD,
    name: str = "words",
) -> SlotQuery:
    return SlotQuery(
        query_id=name,
        name=name,
        graph=graph,
        sources={source: SourceRate(rate, rate, backlog) for source, rate in offered.items()},
        batches=batches,
        period_seconds=period,
    )


def window(*queries: SlotQuery, executors: int = 2, cores: int = 5) -> SlotWindow:
    return SlotWindow(
        application="app",
        start=0.0,
        end=10.0,
        parallelism={EXECUTORS: executors},
        queries=queries,
        executors=tuple(ExecutorState(str(number), "host", cores) for number in range(executors)),
        slots_per_executor=cores,
    )


def words(
    query: TrueQuery, rate: float, slots: int, backlog: float = 0.0, sizes: tuple[float, ...] | None = None
) -> SlotQuery:
    """The word count at a rate, its batches as large as what arrives in a period, more or less."""
    given_sizes = sizes or tuple(rate * PERIOD * factor for factor in (0.8, 1.0, 1.2, 1.1, 0.9, 1.0))
    return query_window(chain(query), query.runs(given_sizes, slots), {"flatmap": rate}, backlog)


def usual_seconds(query: TrueQuery, records: float, slots: int) -> float:
    """The median batch, drawn apart so that asking changes nothing."""
    apart = replace(query, random=np.random.default_rng(99))
    return float(np.median([batch.seconds for batch in apart.runs((records,) * 21, slots)]))


def best_executors(query: TrueQuery, rate: float, cores: int) -> int:
    """What a search over sizes finds to be the least that keeps the headroom."""
    sizes = range(1, 50)
    return next(e for e in sizes if usual_seconds(query, rate / 0.8 * PERIOD, e * cores) <= PERIOD)


class Cluster:
    """The true query on executors that change as told, one window at a time."""

    def __init__(self, query: TrueQuery, rate: float, executors: int, cores: int) -> None:
        self.query, self.rate, self.executors, self.cores = query, rate, executors, cores
        self._next_batch, self._backlog = 0, 0.0

    def observe(self, batches: int = 6) -> SlotWindow:
        slots, ran = self.executors * self.cores, []
        for _ in range(batches):
            arrived = self.rate * PERIOD + self._backlog
            size = min(arrived, 2 * self.rate * PERIOD)
            batch = self.query.run(self._next_batch, self._next_batch * PERIOD, size, slots)
            self._backlog = max(0.0, arrived - size + self.rate * (batch.seconds - PERIOD))
            self._next_batch += 1
            ran.append(batch)
        graph = chain(self.query)
        return window(
            query_window(graph, tuple(ran), {"flatmap": self.rate}, self._backlog),
            executors=self.executors,
            cores=self.cores,
        )
