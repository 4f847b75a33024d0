"""The simulated dataflow: its state, the change of parallelism under way, and what was seen each second."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import Floats, Integers
from penstock.simulate.capacity import skew_with
from penstock.simulate.experiment import Experiment
from penstock.simulate.flow_kernel import Flow, Power, Wiring, advance
from penstock.simulate.scenario import OperatorSpec, SourceSpec

READ, BACKLOG, QUEUED, LATENCY = range(4)
"""Columns of `VirtualDataflow.seen`."""
UNLIMITED_SERVICE = 1e-6
"""Seconds a record that a source without a service time is said to have worked on it: rates need one."""


class VirtualDataflow:
    """Advances a dataflow in steps of one second; nothing happens between calls."""

    def __init__(self, experiment: Experiment) -> None:
        size = len(experiment.graph.operators)
        self.experiment = experiment
        self.now = 0
        self.instances: Integers = experiment.initial.copy()
        self.held: Integers = np.zeros((experiment.seconds, size), dtype=np.int64)
        self.down = np.zeros(experiment.seconds, dtype=np.bool_)
        self.seen: Floats = np.zeros((experiment.seconds, 4))
        self.flow = Flow(*(np.zeros(size) for _ in Flow._fields))
        self.wanted: Integers | None = None
        self.wanted_at = 0
        self._power: Power | None = None
        self.wiring = _wiring(experiment.graph, experiment.specs)
        self._skews = np.array([getattr(spec, "skew", 0.0) for spec in experiment.specs])
        self._shares = experiment.capacity_shares() if experiment.scenario.slowdowns else None

    def change(self, instances: Mapping[str, int]) -> int:
        """Begin a change of parallelism; returns when it is there."""
        wanted = self.instances.copy()
        for name, count in instances.items():
            wanted[self.experiment.graph.index[name]] = count
        self.wanted, self.wanted_at = wanted, self.now + int(self.experiment.scenario.scaling.pause)
        if self.wanted_at == self.now:
            self._take_over()
        return self.wanted_at

    def advance(self, until: int) -> None:
        """Let time pass; a change that falls due meanwhile takes effect at its second."""
        until = min(until, self.experiment.seconds)
        while self.now < until:
            end = min(until, self.wanted_at) if self.wanted is not None else until
            self._flow(self._steady_until(end))
            if self.wanted is not None and self.now >= self.wanted_at:
                self._take_over()

    def parallelism(self) -> dict[str, int]:
        """Operator → instances held now."""
        return dict(zip(self.experiment.names, self.instances.tolist(), strict=True))

    def skew(self) -> Floats:
        """How much more than the average the busiest instance of each operator gets."""
        return skew_with(self.instances, self._skews)

    def _take_over(self) -> None:
        assert self.wanted is not None
        self.instances, self.wanted, self._power = self.wanted, None, None

    def _steady_until(self, end: int) -> int:
        """The end of the span in which all operators keep the share of capacity that they have now."""
        if self._shares is None:
            return end
        differs = (self._shares[self.now : end] != self._shares[self.now]).any(axis=1)
        return self.now + int(np.argmax(differs)) if differs.any() else end

    def _flow(self, until: int) -> None:
        span = slice(self.now, until)
        self.held[span] = self.instances
        stopped = self.wanted is not None and self.experiment.scenario.scaling.kind == "restart"
        self.down[span] = stopped
        if self._power is None or self._shares is not None:
            self._power = self._present_power()
        power = self._power._replace(capacity=np.zeros(len(self.instances))) if stopped else self._power
        advance(self.wiring, power, self.flow, self.experiment.offered[span], self.seen[span])
        self.now = until

    def _present_power(self) -> Power:
        counts = self.instances.tolist()
        tables = self.experiment.capacities
        capacity = np.array([table[count] for table, count in zip(tables, counts, strict=True)])
        if self._shares is not None:
            capacity = capacity * self._shares[self.now]
        instances = self.instances.astype(np.float64)
        even = capacity * (1 + self.skew())
        service = np.where(np.isinf(capacity), UNLIMITED_SERVICE, instances / even)
        return Power(capacity, service, instances)


def _wiring(graph: LogicalGraph, specs: tuple[SourceSpec | OperatorSpec, ...]) -> Wiring:
    downstream: list[list[int]] = [[] for _ in graph.operators]
    for target, feeds in enumerate(graph.upstream):
        for origin in feeds:
            downstream[origin].append(target)
    operators = [spec if isinstance(spec, OperatorSpec) else None for spec in specs]
    return Wiring(
        *_lists([list(feeds) for feeds in graph.upstream]),
        *_lists(downstream),
        selectivity=np.array([spec.selectivity if spec else 1.0 for spec in operators]),
        room=np.array([spec.queue if spec and spec.queue else np.inf for spec in operators]),
        keeps_backlog=np.array([getattr(spec, "keeps_backlog", True) for spec in specs], dtype=np.int64),
        variability=np.array([spec.variability if spec else 0.0 for spec in operators]),
    )


def _lists(neighbours: list[list[int]]) -> tuple[Integers, Integers]:
    lengths = np.array([0, *(len(some) for some in neighbours)], dtype=np.int64)
    flat = np.array([one for some in neighbours for one in some], dtype=np.int64)
    return np.cumsum(lengths), flat
