"""A fluid pipeline to feed policies with: operators in a chain, each with a capacity per instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import OperatorQuery, OperatorWindow, SourceRate
from penstock.decide.policy import Policy, Proposal, Scale

SECONDS = 10.0


@dataclass
class Pipeline:
    """A source and operators behind it; queues between them are bounded, so what is late waits outside."""

    per_instance: Mapping[str, float]
    """Operator → records per second that one instance can take, in the order of the chain."""
    held: dict[str, int] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    unbounded: bool = False
    """Queues between operators hold everything: each operator takes what it can."""
    backlog: float = 0.0
    now: float = 0.0
    queues: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held = {"source": 1, **dict.fromkeys(self.per_instance, 1), **self.held}

    @property
    def graph(self) -> LogicalGraph:
        names = ["source", *self.per_instance]
        return LogicalGraph([Operator(name, name not in self.fixed) for name in names], pairwise(names))

    def run(self, offered: float) -> OperatorWindow:
        """One window of ten seconds at a rate; every operator passes on what it takes."""
        start, self.now = self.now, self.now + SECONDS
        flows = self._unbounded(offered) if self.unbounded else self._bounded(offered)
        read = flows["source"]
        self.backlog = max(0.0, self.backlog + (offered - read) * SECONDS)
        rows = [row for name in self.held for row in self._rows(name, flows[name])]
        metrics = MetricWindow.of(self.graph, start, self.now, rows)
        sources = {"source": SourceRate(offered, read, self.backlog)}
        query = OperatorQuery("q", "pipeline", self.graph, sources, metrics)
        return OperatorWindow("app", start, self.now, dict(self.held), (query,))

    def capacity(self, name: str) -> float:
        return self.held[name] * self.per_instance[name]

    def _bounded(self, offered: float) -> dict[str, float]:
        read = min(offered + self.backlog / SECONDS, *(self.capacity(name) for name in self.per_instance))
        return dict.fromkeys(self.held, read)

    def _unbounded(self, offered: float) -> dict[str, float]:
        flows = {"source": offered}
        flow = offered
        for name in self.per_instance:
            waiting = self.queues.get(name, 0.0) / SECONDS
            taken = min(flow + waiting, self.capacity(name))
            self.queues[name] = (flow + waiting - taken) * SECONDS
            flows[name] = flow = taken
        return flows

    def _rows(self, name: str, flow: float) -> list[InstanceMetrics]:
        count = self.held[name]
        share = flow * SECONDS / count
        useful = SECONDS * flow / self.capacity(name) if name in self.per_instance else 1.0
        taken = share if name in self.per_instance else 0.0
        return [InstanceMetrics(name, str(number), taken, share, useful) for number in range(count)]

    def steered(self, policy: Policy, rates: Sequence[float]) -> list[Proposal | NotReady]:
        """Run window after window at these rates; every change takes effect at once."""
        answers: list[Proposal | NotReady] = []
        for rate in rates:
            answer = policy.propose(self.run(rate))
            if isinstance(answer, Scale):
                self.held.update(answer.parallelism)
            answers.append(answer)
        return answers
