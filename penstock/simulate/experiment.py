"""A scenario made ready to run: its graph, the records of every second, the settings; built once for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import Floats, Integers
from penstock.dataflow.window import EXECUTORS
from penstock.errors import BadInput
from penstock.settings.model import Settings
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
    """For each unit its records per second with 0, 1, ... instances."""
    own_capacities: tuple[Floats, ...]
    """The same whatever a remote service takes; operators alone have it."""
    initial: Integers

    @property
    def seconds(self) -> int:
        """How long it lasts."""
        return len(self.offered)

    @cached_property
    def specs(self) -> tuple[SourceSpec | OperatorSpec, ...]:
        """The scenario's description of each operator."""
        known: dict[str, SourceSpec | OperatorSpec] = {**self.scenario.sources, **self.scenario.operators}
        return tuple(known[operator.name] for operator in self.graph.operators)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The operators' names."""
        return tuple(operator.name for operator in self.graph.operators)

    @property
    def shares_slots(self) -> bool:
        """Whether all operators share the slots of executors."""
        return self.scenario.batches is not None

    @cached_property
    def units(self) -> tuple[str, ...]:
        """The units that have a size: each operator, or the executors."""
        return (EXECUTORS,) if self.shares_slots else self.names

    @cached_property
    def slots(self) -> Integers:
        """Slots that one instance of each unit takes."""
        if self.scenario.batches is not None:
            return np.array([self.scenario.batches.cores], dtype=np.int64)
        return np.array([spec.slots for spec in self.specs], dtype=np.int64)

    @cached_property
    def scaled(self) -> NDArray[np.bool_]:
        """For each unit, whether policies may change it."""
        return np.array([True]) if self.shares_slots else self.graph.is_scalable

    @cached_property
    def selectivity(self) -> Floats:
        """Records sent for each record taken; sources pass on what they read."""
        return np.array([getattr(spec, "selectivity", 1.0) for spec in self.specs])

    @cached_property
    def skews(self) -> Floats:
        """How much more than the average the busiest instance gets, if there are several."""
        return np.array([getattr(spec, "skew", 0.0) for spec in self.specs])

    @cached_property
    def coordination(self) -> Floats:
        """Seconds of latency for each instance."""
        return np.array([getattr(spec, "coordination", 0.0) for spec in self.specs])

    @cached_property
    def variability(self) -> Floats:
        """Mean of the squared variations of arrivals and service: as given, or from their distributions."""
        random = any(spec.arrivals == "poisson" for spec in self.scenario.sources.values())
        return np.array([_variability(spec, float(random)) for spec in self.specs])

    def capacity_of(self, instances: Integers, own: bool = False) -> Floats:
        """Return records per second of so many instances of each operator; `own`: without remote services."""
        pairs = zip(self.own_capacities if own else self.capacities, instances.tolist(), strict=True)
        return np.array([table[count] for table, count in pairs])

    def slow_down(self, instances: Integers) -> float:
        """Return the share of its speed that an instance keeps beside all others on the same cores."""
        disturbed = self.scenario.interference
        if disturbed is None or disturbed.cores is None:
            return 1.0
        crowd = float(instances @ self.slots) / disturbed.cores - 1
        return 1 / (1 + disturbed.weight * max(0.0, crowd))

    def capacity_shares(self) -> Floats:
        """Return for each second and operator the share of its capacity that it has."""
        shares = np.ones_like(self.offered)
        for slow in self.scenario.slowdowns:
            shares[int(slow.start) : int(slow.end), self.graph.index[slow.operator]] *= slow.capacity
        return shares

    def starting_with(self, instances: Mapping[str, int]) -> Experiment:
        """Return the same from another initial parallelism."""
        initial = self.initial.copy()
        for name, count in instances.items():
            if name not in self.units:
                raise BadInput(f"--initial: {self.name} has no {name!r}; it has {', '.join(self.units)}")
            most = len(self.capacities[self.units.index(name)]) - 1
            if not 1 <= count <= most:
                raise BadInput(f"--initial: {name} may have 1 to {most} instances, not {count}")
            initial[self.units.index(name)] = count
        return replace(self, initial=initial)


def _variability(spec: SourceSpec | OperatorSpec, of_arrivals: float) -> float:
    if isinstance(spec, SourceSpec):
        return 0.0
    if spec.variability is not None:
        return spec.variability
    return (of_arrivals + spec.distribution.squared_variation) / 2
