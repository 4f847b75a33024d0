"""Moves that do not disturb each other, grouped (section 5.2.4).

A move is an edge from its source to its target. Moves disturb each other at a worker that has more of them to
load, or to give away, than slots. So each worker is split into its slots, the edges are dealt out over them,
and the edges of the bipartite graph that results are coloured: one colour is one group, and there are as many
colours as the busiest slot has edges, which is the least there can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Node: TypeAlias = tuple[str, str, int]
"""Side, worker, and which of its slots."""


@dataclass(slots=True)
class _Colouring:
    """Colours of edges so far; at each node every colour is used at most once."""

    ends: list[tuple[Node, Node]]
    colours: int
    colour: dict[int, int] = field(default_factory=dict)
    used: dict[Node, dict[int, int]] = field(default_factory=dict)

    def free(self, node: Node) -> set[int]:
        return set(range(self.colours)) - set(self.used.get(node, ()))

    def give(self, edge: int, colour: int) -> None:
        self.colour[edge] = colour
        for node in self.ends[edge]:
            self.used.setdefault(node, {})[colour] = edge

    def take(self, edge: int) -> None:
        colour = self.colour.pop(edge)
        for node in self.ends[edge]:
            del self.used[node][colour]

    def add(self, edge: int) -> None:
        """Colour one edge; where its ends have no free colour in common, swap two along a path."""
        one, other = self.ends[edge]
        common = self.free(one) & self.free(other)
        if common:
            self.give(edge, min(common))
            return
        first, second = min(self.free(one)), min(self.free(other))
        self._swap(other, first, second)
        self.give(edge, first)

    def _swap(self, node: Node, first: int, second: int) -> None:
        """Exchange the two colours on the path that starts here with the first.

        It ends before it comes to the other end of the edge: the graph is bipartite, and the first colour is
        free there.
        """
        path, wanted = [], first
        while (edge := self.used.get(node, {}).get(wanted)) is not None:
            path.append((edge, second if wanted == first else first))
            one, other = self.ends[edge]
            node = other if node == one else one
            wanted = second if wanted == first else first
        for edge, _ in path:
            self.take(edge)
        for edge, colour in path:
            self.give(edge, colour)


def groups(ways: Sequence[tuple[str, str]], slots: Mapping[str, int]) -> list[list[int]]:
    """Indices of the ways (source, target), grouped; earlier ways come in earlier groups where they can."""
    ends = _dealt(ways, slots)
    degrees: dict[Node, int] = {}
    for pair in ends:
        for node in pair:
            degrees[node] = degrees.get(node, 0) + 1
    colouring = _Colouring(ends, max(degrees.values(), default=0))
    for edge in range(len(ends)):
        colouring.add(edge)
    return [
        [edge for edge in range(len(ends)) if colouring.colour[edge] == colour]
        for colour in range(colouring.colours)
    ]


def _dealt(ways: Sequence[tuple[str, str]], slots: Mapping[str, int]) -> list[tuple[Node, Node]]:
    dealt: dict[tuple[str, str], int] = {}

    def node(side: str, worker: str) -> Node:
        number = dealt.get((side, worker), 0)
        dealt[side, worker] = number + 1
        return (side, worker, number % max(1, slots.get(worker, 1)))

    return [(node("from", source), node("to", target)) for source, target in ways]
