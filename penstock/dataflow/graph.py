"""The logical dataflow graph: operators, edges, sources, sinks, in topological order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.errors import BadGraph


@dataclass(frozen=True, slots=True)
class Operator:
    """One logical operator; `scalable=False` tags one that does not gain from more instances."""

    name: str
    scalable: bool = True


class LogicalGraph:
    """A validated directed acyclic graph of operators (DS2 section 3.1).

    Operators are numbered in topological order, as equations 7 and 8 expect.
    """

    def __init__(self, operators: Iterable[Operator | str], edges: Iterable[tuple[str, str]]) -> None:
        given = [Operator(o) if isinstance(o, str) else o for o in operators]
        self.edges: tuple[tuple[str, str], ...] = tuple(edges)
        _check_names(given)
        _check_edges({o.name for o in given}, self.edges)
        self.operators: tuple[Operator, ...] = _topological_order(given, self.edges)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The operators' names, in topological order."""
        return tuple(operator.name for operator in self.operators)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Operator name → its number in topological order."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def upstream(self) -> tuple[tuple[int, ...], ...]:
        """For each operator, the numbers of the operators that feed it."""
        feeds: list[list[int]] = [[] for _ in self.operators]
        for origin, target in self.edges:
            feeds[self.index[target]].append(self.index[origin])
        return tuple(tuple(sorted(numbers)) for numbers in feeds)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Operators that nothing feeds."""
        return tuple(name for name, feeds in zip(self.names, self.upstream, strict=True) if not feeds)

    @cached_property
    def fed(self) -> tuple[str, ...]:
        """Operators that another one feeds."""
        return tuple(name for name, feeds in zip(self.names, self.upstream, strict=True) if feeds)

    @cached_property
    def is_source(self) -> NDArray[np.bool_]:
        """For each operator, whether nothing feeds it; a column to select by."""
        return np.array([not feeds for feeds in self.upstream], dtype=np.bool_)

    @cached_property
    def is_scalable(self) -> NDArray[np.bool_]:
        """For each operator, whether it gains from more instances; sources are not scaled (equation 7)."""
        return np.array([operator.scalable for operator in self.operators], dtype=np.bool_) & ~self.is_source

    @cached_property
    def scaled(self) -> tuple[bool, ...]:
        """`is_scalable` as plain values, for code that goes from operator to operator."""
        return tuple(self.is_scalable.tolist())

    @cached_property
    def is_fixed(self) -> NDArray[np.bool_]:
        """For each operator, whether it is fed and cannot be scaled."""
        return ~self.is_scalable & ~self.is_source

    @cached_property
    def has_fixed(self) -> bool:
        """Whether any operator is fixed; most graphs have none, and need no column to know it."""
        return bool(self.is_fixed.any())

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """Operators that feed nothing."""
        feeding = {origin for origin, _ in self.edges}
        return tuple(o.name for o in self.operators if o.name not in feeding)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogicalGraph):
            return NotImplemented
        return set(self.operators) == set(other.operators) and set(self.edges) == set(other.edges)

    def __hash__(self) -> int:
        return hash((frozenset(self.operators), frozenset(self.edges)))

    def __repr__(self) -> str:
        return f"LogicalGraph({[o.name for o in self.operators]}, {list(self.edges)})"


def _check_names(operators: list[Operator]) -> None:
    if not operators:
        raise BadGraph("the graph has no operators")
    seen: set[str] = set()
    for operator in operators:
        if operator.name in seen:
            raise BadGraph(f"operator {operator.name!r} is declared twice")
        seen.add(operator.name)


def _check_edges(names: set[str], edges: tuple[tuple[str, str], ...]) -> None:
    seen: set[tuple[str, str]] = set()
    for edge in edges:
        for name in edge:
            if name not in names:
                raise BadGraph(f"edge {edge[0]!r} → {edge[1]!r} names the unknown operator {name!r}")
        if edge in seen:
            raise BadGraph(f"edge {edge[0]!r} → {edge[1]!r} is declared twice")
        seen.add(edge)


def _topological_order(operators: list[Operator], edges: tuple[tuple[str, str], ...]) -> tuple[Operator, ...]:
    """Order by Kahn's algorithm; ties keep the order in which operators were declared."""
    by_name = {operator.name: operator for operator in operators}
    waiting = dict.fromkeys(by_name, 0)
    downstream: dict[str, list[str]] = {name: [] for name in by_name}
    for origin, target in edges:
        waiting[target] += 1
        downstream[origin].append(target)
    ready = deque(name for name, count in waiting.items() if count == 0)
    ordered: list[Operator] = []
    while ready:
        name = ready.popleft()
        ordered.append(by_name[name])
        for target in downstream[name]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    if len(ordered) < len(operators):
        raise BadGraph(f"the graph has a cycle: {' → '.join(_find_cycle(downstream, waiting))}")
    return tuple(ordered)


def _find_cycle(downstream: Mapping[str, list[str]], waiting: Mapping[str, int]) -> list[str]:
    """Walk backwards among unresolved operators: each still waits for another unresolved one."""
    unresolved = {name for name, count in waiting.items() if count > 0}
    feeder = {
        target: origin for origin in unresolved for target in downstream[origin] if target in unresolved
    }
    path: list[str] = []
    name = min(unresolved)
    while name not in path:
        path.append(name)
        name = feeder[name]
    cycle = path[path.index(name) :]
    return [*reversed(cycle), cycle[-1]]
