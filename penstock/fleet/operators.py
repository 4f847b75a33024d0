"""Operators of many applications in flat columns, as agents pre-aggregate them (DS2 equations 5 and 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import Floats, Integers
from penstock.dataflow.rates import OperatorRates, unusable_rates
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import SourceRate
from penstock.decide.ds2 import OperatorNeeds, needs_of_rates
from penstock.decide.ds2_settings import Ds2Settings


@dataclass(frozen=True, slots=True)
class OperatorColumns:
    """Application i has the operators `first[i]` up to `first[i + 1]`, in topological order.

    The operators that feed operator j are `upstream[upstream_first[j] : upstream_first[j + 1]]`, counted from
    the application's first one, ascending; one without is a source. Rates are records per second of all
    instances together; offered, observed and backlog are those of sources.
    """

    first: Integers
    true_processing: Floats
    true_output: Floats
    instances: Integers
    scalable: NDArray[np.bool_]
    offered: Floats
    observed: Floats
    backlog: Floats
    upstream_first: Integers
    upstream: Integers

    @property
    def applications(self) -> int:
        """How many applications there are."""
        return len(self.first) - 1

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """In the order in which the kernel takes them."""
        return (
            self.first,
            self.true_processing,
            self.true_output,
            self.instances,
            self.scalable,
            self.offered,
            self.observed,
            self.backlog,
            self.upstream_first,
            self.upstream,
        )


def reference_needs(
    columns: OperatorColumns, application: int, settings: Ds2Settings
) -> OperatorNeeds | NotReady:
    """One application by the pure policy: what the kernel must agree with."""
    begin, end = int(columns.first[application]), int(columns.first[application + 1])
    names = [str(number) for number in range(end - begin)]
    graph = _graph(columns, begin, names)
    sources = {name: _source(columns, begin + int(name)) for name in graph.sources}
    rates = _rates(columns, begin, end)
    unread = next((n for n, s in sources.items() if not _plausible(s)), None)
    if unread is not None:
        return NotReady(f"the reading of source {unread} cannot be right")
    if bool((columns.instances[begin:end] < 1).any()):
        return NotReady("an operator has no instance")
    return unusable_rates(graph, rates) or needs_of_rates(graph, rates, sources, settings)


def _graph(columns: OperatorColumns, begin: int, names: list[str]) -> LogicalGraph:
    edges = [
        (names[feed], name)
        for number, name in enumerate(names)
        for feed in columns.upstream[
            columns.upstream_first[begin + number] : columns.upstream_first[begin + number + 1]
        ].tolist()
    ]
    operators = [Operator(name, bool(columns.scalable[begin + n])) for n, name in enumerate(names)]
    return _InGivenOrder(operators, edges)


class _InGivenOrder(LogicalGraph):
    """Agents number operators topologically; that order is kept, so that answers line up with the columns."""

    def __init__(self, operators: list[Operator], edges: list[tuple[str, str]]) -> None:
        super().__init__(operators, edges)
        self.operators = tuple(operators)


def _rates(columns: OperatorColumns, begin: int, end: int) -> OperatorRates:
    processing, output = columns.true_processing[begin:end], columns.true_output[begin:end]
    return OperatorRates(columns.instances[begin:end], processing, output, processing, output)


def _source(columns: OperatorColumns, place: int) -> SourceRate:
    return SourceRate(
        float(columns.offered[place]), float(columns.observed[place]), float(columns.backlog[place])
    )


def _plausible(source: SourceRate) -> bool:
    readings = (source.offered_per_second, source.backlog_records)
    return all(np.isfinite(reading) and reading >= 0 for reading in readings)
