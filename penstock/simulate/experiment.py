"""A scenario made ready to run: its graph, the records of every second, the settings; built once for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import Floats, Integers
from penstock.errors import BadInput
from penstock.settings import Settings
from penstock.simulate.scenario import OperatorSpec, Scenario, SourceSpec


@dataclass(frozen=True, eq=False)
class Experiment:
    """All that a run needs; columns stand in the graph's topological order."""

    name: str
    scenario: Scenario
    graph: LogicalGraph
    settings: Settings
    offered: Floats
    """Records offered in each second to each operator: zero but for sources."""
    capacities: tuple[Floats, ...]
    """For each operator its records per second with 0, 1, ... instances."""
    initial: Integers

    @property
    def seconds(self) -> int:
        """How long it lasts."""
        return len(self.offered)

    @cached_property
    def specs(self) -> tuple[SourceSpec | OperatorSpec, ...]:
        """What the scenario says of each operator."""
        known: dict[str, SourceSpec | OperatorSpec] = {**self.scenario.sources, **self.scenario.operators}
        return tuple(known[operator.name] for operator in self.graph.operators)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The operators' names."""
        return tuple(operator.name for operator in self.graph.operators)

    @cached_property
    def slots(self) -> Integers:
        """Slots that one instance of each operator takes."""
        return np.array([spec.slots for spec in self.specs], dtype=np.int64)

    def capacity_shares(self) -> Floats:
        """For each second and operator, the share of its capacity that it has."""
        shares = np.ones_like(self.offered)
        for slow in self.scenario.slowdowns:
            shares[int(slow.start) : int(slow.end), self.graph.index[slow.operator]] *= slow.capacity
        return shares

    def starting_with(self, instances: Mapping[str, int]) -> Experiment:
        """The same from another initial parallelism."""
        initial = self.initial.copy()
        for name, count in instances.items():
            if name not in self.graph.index:
                raise BadInput(f"initial: {self.name} has no operator {name!r}: {', '.join(self.names)}")
            if not 1 <= count < len(self.capacities[self.graph.index[name]]):
                raise BadInput(f"initial: {name} cannot have {count} instances")
            initial[self.graph.index[name]] = count
        return replace(self, initial=initial)
