"""Plans: read from users, scheduled from assignments, and made into the action that the loop performs.

The moves of an optimized plan are grouped so that they do not disturb each other (section 5.2.4). A move is
an edge from its source to its target. Moves disturb each other at a worker that has more of them to load, or
to give away, than slots. So each worker is split into its slots, the edges are dealt out over them, and the
edges of the bipartite graph that results are coloured: one colour is one group, and there are as many colours
as the busiest slot has edges, which is the least there can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.dataflow.moves import Bin, Move, Plan, Strategy
from penstock.decide.policy import ExpectedEffect, MoveState
from penstock.errors import BadInput
from penstock.migrate.bins import StateView
from penstock.migrate.planner import Assignment
from penstock.migrate.settings import MigrationSettings

Entry: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""A move as a user writes it: {"batch", "bin" or "operator" and "partition", "from", "to"}, or the tuple
(batch, bin, from, to), where a bin is a Bin, its text, or the pair (operator, partition)."""
Node: TypeAlias = tuple[str, str, int]
"""Side, worker, and which of its slots."""


def read_plan(query: str, entries: Iterable[Entry], view: StateView | None = None) -> Plan:
    """Check a plan that a user wrote; BadInput names the entry that cannot be used."""
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        raise BadInput("the plan's moves are no list")
    numbered = [(number, _read_move(query, number, entry)) for number, entry in enumerate(entries, start=1)]
    numbered.sort(key=lambda one: one[1].batch)
    _check_each_bin(numbered, view)
    return Plan(query, tuple(move for _, move in numbered), Strategy.OWN, "written by hand")


def schedule(
    view: StateView,
    assignments: Sequence[Assignment],
    strategy: Strategy,
    settings: MigrationSettings | None = None,
    reason: str = "",
) -> Plan:
    """Plan when each bin moves, from the batch after the last committed one on (section 5.1.2).

    Where bins are prepared, a batch passes before the first move. An optimized plan is the quickest that its
    groups allow; while it runs, it goes only as fast as its latency budget bears.
    """
    settings = settings or MigrationSettings.of(strategy)
    first = view.batch + (2 if settings.prepare else 1)
    steps = _divide_into_steps(view, assignments, strategy, settings)
    every = 1 + settings.gap
    moves = tuple(
        Move(first + number * every, one.bin, one.source, one.target)
        for number, together in enumerate(steps)
        for one in together
    )
    return Plan(view.query, moves, strategy, reason)


def propose_moves(plans: Sequence[tuple[StateView, Plan]], reason: str) -> MoveState:
    """Make the action that carries out these plans, with what it is expected to bring."""
    before = max(view.imbalance() for view, _ in plans)
    after = max(view.follow(plan).imbalance() for view, plan in plans)
    sizes = {state.bin: state.bytes for view, _ in plans for state in view.bins}
    moves = [move for _, plan in plans for move in plan.moves]
    moved = sum(sizes.get(move.bin, 0) for move in moves)
    figures = {"imbalance_ratio": after, "bytes_moved": float(moved)}
    names = ", ".join(view.name for view, _ in plans)
    why = f"{reason} in {names}: the fullest executor has {before:.0%} more load a slot than the mean"
    summary = f"{len(moves)} bins move, and it has {after:.0%} more"
    return MoveState(tuple(plan for _, plan in plans), why, ExpectedEffect(summary, figures))


def describe_plan(view: StateView, plan: Plan) -> dict[str, Any]:
    """Describe what a plan moves, the bytes and batches that it takes, and what it brings, as plain data."""
    sizes = {state.bin: state.bytes for state in view.bins}
    return {
        **plan.plain(),
        "name": view.name,
        "moves": [{**move.plain(), "bytes": sizes.get(move.bin, 0)} for move in plan.moves],
        "batches": (plan.last_batch() or view.batch) - view.batch,
        "bytes": sum(sizes.get(move.bin, 0) for move in plan.moves),
        "imbalance_before": view.imbalance(),
        "imbalance_after": view.follow(plan).imbalance(),
    }


def group_ways(ways: Sequence[tuple[str, str]], slots: Mapping[str, int]) -> list[list[int]]:
    """Group the indices of the ways (source, target); earlier ways come in earlier groups where they can."""
    ends = _deal_out(ways, slots)
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


def _divide_into_steps(
    view: StateView, assignments: Sequence[Assignment], strategy: Strategy, settings: MigrationSettings
) -> Iterator[Sequence[Assignment]]:
    """Yield what moves together, step by step."""
    ordered = _order(view, assignments, settings.hot_first)
    groups, at_once = [ordered], settings.bins_per_batch
    if strategy is Strategy.ALL_AT_ONCE:
        at_once = max(1, len(ordered))
    elif strategy is Strategy.FLUID:
        at_once = 1
    elif strategy is Strategy.OPTIMIZED:
        slots = {worker.worker: worker.slots for worker in view.workers}
        ways = group_ways([(one.source, one.target) for one in ordered], slots)
        groups = [[ordered[number] for number in group] for group in ways]
    for members in groups:
        yield from (members[start : start + at_once] for start in range(0, len(members), at_once))


def _order(view: StateView, assignments: Iterable[Assignment], hot_first: bool) -> list[Assignment]:
    """Sort by load: hot first relieves stragglers soonest, cold first disturbs least at the start."""
    loads = view.loads()
    sign = -1 if hot_first else 1
    return sorted(assignments, key=lambda one: (sign * loads[one.bin], one.bin))


@dataclass(slots=True)
class _Colouring:
    """The colours of edges so far; at each node every colour is used at most once."""

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


def _deal_out(ways: Sequence[tuple[str, str]], slots: Mapping[str, int]) -> list[tuple[Node, Node]]:
    dealt: dict[tuple[str, str], int] = {}

    def node(side: str, worker: str) -> Node:
        number = dealt.get((side, worker), 0)
        dealt[side, worker] = number + 1
        return (side, worker, number % max(1, slots.get(worker, 1)))

    return [(node("from", source), node("to", target)) for source, target in ways]


def _read_move(query: str, number: int, entry: Entry) -> Move:
    try:
        batch, bin_, source, target = _read_fields(query, entry)
    except BadInput as error:
        raise BadInput(f"move {number}: {error}") from None
    if bin_.query != query:
        raise BadInput(f"move {number}: bin {bin_} is not of query {query}")
    if source == target:
        raise BadInput(f"move {number}: bin {bin_} is to move from {source} to itself")
    return Move(batch, bin_, source, target)


def _read_fields(query: str, entry: Entry) -> tuple[int, Bin, str, str]:
    if isinstance(entry, Mapping):
        unknown = set(entry) - {"batch", "bin", "operator", "partition", "from", "to", "bytes"}
        if unknown:
            raise BadInput(f"unknown key {min(map(str, unknown))!r}")
        where = entry["bin"] if "bin" in entry else (entry.get("operator"), entry.get("partition"))
        parts = (entry.get("batch"), where, entry.get("from"), entry.get("to"))
    elif isinstance(entry, Sequence) and not isinstance(entry, str | bytes) and len(entry) == 4:
        parts = (entry[0], entry[1], entry[2], entry[3])
    else:
        raise BadInput(f"{entry!r} is neither (batch, bin, from, to) nor a mapping")
    return (
        _read_number("batch", parts[0]),
        _read_bin(query, parts[1]),
        _read_worker("from", parts[2]),
        _read_worker("to", parts[3]),
    )


def _read_bin(query: str, written: Any) -> Bin:
    if isinstance(written, Bin):
        return written
    if isinstance(written, str):
        return Bin.parse(written)
    if isinstance(written, Sequence) and len(written) == 2:
        return Bin(query, _read_number("operator", written[0]), _read_number("partition", written[1]))
    raise BadInput(f"{written!r} is no bin: a text or the pair (operator, partition) is expected")


def _read_number(key: str, written: Any) -> int:
    if isinstance(written, bool) or not isinstance(written, int) or written < 0:
        raise BadInput(f"{key!r} is {written!r}: a whole number from 0 on is expected")
    return written


def _read_worker(key: str, written: Any) -> str:
    # executor ids look like numbers, and are often written as such
    if isinstance(written, int) and not isinstance(written, bool):
        return str(written)
    if not isinstance(written, str) or not written:
        raise BadInput(f"{key!r} is {written!r}: the id of an executor is expected")
    return written


def _check_each_bin(numbered: Sequence[tuple[int, Move]], view: StateView | None) -> None:
    """Check that each bin has one worker at a time and moves from where it is, and that both exist."""
    at = dict(view.placement()) if view else {}
    known = {state.bin for state in view.bins} if view else set()
    alive = {worker.worker for worker in view.workers} if view else set()
    moved_at: dict[Bin, int] = {}
    for number, move in numbered:
        if view and move.bin not in known:
            raise BadInput(f"move {number}: the query has no bin {move.bin}")
        if view and move.target not in alive:
            raise BadInput(f"move {number}: there is no executor {move.target}")
        if moved_at.get(move.bin) == move.batch:
            raise BadInput(f"move {number}: bin {move.bin} moves twice at batch {move.batch}")
        if at.get(move.bin, move.source) != move.source:
            raise BadInput(f"move {number}: bin {move.bin} is at {at[move.bin]}, not at {move.source}")
        at[move.bin], moved_at[move.bin] = move.target, move.batch
