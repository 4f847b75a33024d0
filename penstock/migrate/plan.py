"""Plans as plain data: an ordered list of moves, each with the batch at which it takes effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from penstock.errors import BadInput
from penstock.migrate.bins import Bin, StateView


class Strategy(Enum):
    """How the changes from one placement to another are revealed (section 5.1.2)."""

    FLUID = "fluid"
    """A bin at a time, then as many as the latency budget bears."""
    BATCHED = "batched"
    """A fixed number of bins at a time."""
    ALL_AT_ONCE = "all-at-once"
    """Everything in one batch, as a restart would."""
    OWN = "own"
    """A plan that a user wrote: each move at the batch that it names."""

    @staticmethod
    def named(text: str) -> Strategy:
        """The strategy of this name, among those that Penstock can follow by itself."""
        for strategy in (Strategy.FLUID, Strategy.BATCHED, Strategy.ALL_AT_ONCE):
            if strategy.value == text:
                return strategy
        raise BadInput(f"unknown strategy {text!r}: fluid, batched or all-at-once is expected")


@dataclass(frozen=True, slots=True)
class Move:
    """As of this batch the bin is at the target: an update of the configuration (equation 5.3)."""

    batch: int
    bin: Bin
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What moves, when and why, for one query."""

    query: str
    moves: tuple[Move, ...]
    strategy: Strategy
    reason: str

    def groups(self) -> tuple[tuple[Move, ...], ...]:
        """The moves that take effect together, in the order of their batches."""
        batches = sorted({move.batch for move in self.moves})
        return tuple(tuple(move for move in self.moves if move.batch == batch) for batch in batches)

    def last_batch(self) -> int | None:
        """The batch at which the last move takes effect."""
        return max((move.batch for move in self.moves), default=None)

    def plain(self) -> dict[str, Any]:
        """This plan as plain data that `read_plan` understands."""
        return {
            "query": self.query,
            "strategy": self.strategy.value,
            "reason": self.reason,
            "moves": [plain_move(move) for move in self.moves],
        }


def settled(view: StateView, plan: Plan) -> StateView:
    """The view once the plan is carried out; workers that it empties are about to go, and are left out."""
    after = view.placed({move.bin: move.target for move in plan.moves})
    before, held = set(view.placement().values()), set(after.placement().values())
    staying = tuple(one for one in view.workers if one.worker in held or one.worker not in before)
    return replace(after, workers=staying)


Entry: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""A move as a user writes it: {"batch", "bin" or "operator" and "partition", "from", "to"}, or the tuple
(batch, bin, from, to), where a bin is a Bin, its text, or the pair (operator, partition)."""


def plain_move(move: Move) -> dict[str, Any]:
    """One move as plain data."""
    bin_ = {"operator": move.bin.operator, "partition": move.bin.partition}
    return {"batch": move.batch, **bin_, "from": move.source, "to": move.target}


def plan_from_plain(data: Mapping[str, Any], view: StateView | None = None) -> Plan:
    """The plan that `Plan.plain` wrote, or that a user wrote in the same form."""
    for key in ("query", "moves"):
        if key not in data:
            raise BadInput(f"the plan has no {key!r}")
    written = data.get("strategy", Strategy.OWN.value)
    strategies = {strategy.value: strategy for strategy in Strategy}
    if written not in strategies:
        raise BadInput(f"the plan's strategy is {written!r}: one of {', '.join(strategies)} is expected")
    moves = read_moves(str(data["query"]), data["moves"], view)
    return Plan(str(data["query"]), moves, strategies[written], str(data.get("reason", "")))


def read_plan(
    query: str, entries: Iterable[Entry], view: StateView | None = None, reason: str = "written by hand"
) -> Plan:
    """A plan of one's own, checked: BadInput names the entry that cannot be used."""
    return Plan(query, read_moves(query, entries, view), Strategy.OWN, reason)


def read_moves(query: str, entries: Iterable[Entry], view: StateView | None = None) -> tuple[Move, ...]:
    """Moves from plain data, in the order of their batches."""
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        raise BadInput("the plan's moves are no list")
    numbered = [(number, _move(query, number, entry)) for number, entry in enumerate(entries, start=1)]
    numbered.sort(key=lambda one: one[1].batch)
    _check_each_bin(numbered, view)
    return tuple(move for _, move in numbered)


def _move(query: str, number: int, entry: Entry) -> Move:
    try:
        batch, bin_, source, target = _fields(query, entry)
    except BadInput as error:
        raise BadInput(f"move {number}: {error}") from None
    if bin_.query != query:
        raise BadInput(f"move {number}: bin {bin_} is not of query {query}")
    if source == target:
        raise BadInput(f"move {number}: bin {bin_} is to move from {source} to itself")
    return Move(batch, bin_, source, target)


def _fields(query: str, entry: Entry) -> tuple[int, Bin, str, str]:
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
    return _whole("batch", parts[0]), _bin(query, parts[1]), _name("from", parts[2]), _name("to", parts[3])


def _bin(query: str, written: Any) -> Bin:
    if isinstance(written, Bin):
        return written
    if isinstance(written, str):
        return Bin.parse(written)
    if isinstance(written, Sequence) and len(written) == 2:
        return Bin(query, _whole("operator", written[0]), _whole("partition", written[1]))
    raise BadInput(f"{written!r} is no bin: a text or the pair (operator, partition) is expected")


def _whole(key: str, written: Any) -> int:
    if isinstance(written, bool) or not isinstance(written, int) or written < 0:
        raise BadInput(f"{key!r} is {written!r}: a whole number from 0 on is expected")
    return written


def _name(key: str, written: Any) -> str:
    # executor ids look like numbers, and are often written as such
    if isinstance(written, int) and not isinstance(written, bool):
        return str(written)
    if not isinstance(written, str) or not written:
        raise BadInput(f"{key!r} is {written!r}: the id of an executor is expected")
    return written


def _check_each_bin(numbered: Sequence[tuple[int, Move]], view: StateView | None) -> None:
    """One worker for each bin at a time, each move from where the one before it led; places as seen."""
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
