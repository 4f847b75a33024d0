"""DS2 that learns how capacity really grows: one step where linear extrapolation needs several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.dataflow.propagation import whole_number
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, Execution, QueryWindow
from penstock.decide.ds2 import OperatorNeeds, proposal, query_needs
from penstock.decide.learned_curve import CapacityCurve
from penstock.decide.learned_points import CapacityMemory
from penstock.decide.learned_settings import LearnedSettings
from penstock.decide.policy import Hold, Proposal, Scale
from penstock.decide.readings import shared_operator, unread_source
from penstock.decide.shared_slots import SharedSlots
from penstock.decide.steady_level import SteadyLevel

MOST_OPERATORS = 4096
MOST_SOURCES = 1024
"""Operators and sources that are remembered; those heard of first are dropped for new ones."""
CAPACITY = "capacity of "
"""What the keys of remembered capacities begin with; the rest is the operator."""
SURE = 3.0
"""Standard errors of rate and capacity by which the need must differ from what is held."""
PRESUMED_NOISE = 0.1
"""Noise of offered rates that differ before it is known: only what it does not explain is acted on then."""
ON_SLOTS = "on shared slots the costs for each number of slots have learned what slots take from each other"


@dataclass(frozen=True, slots=True)
class _Sized:
    wanted: int
    exact: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Doubt:
    """How uncertain offered rates are: standard error, noise of one window, and whether that will last."""

    error: float = 0.0
    noise: float = 0.0
    settled: bool = True


class LearnedDs2Policy:
    """Keeps every (parallelism, capacity) pair seen, and asks the curve through them instead of a line."""

    name = "ds2-learned"
    memory_kind = "capacity"

    def __init__(self, settings: LearnedSettings) -> None:
        self._settings = settings
        self._shared_slots = SharedSlots(settings.ds2)
        self._memories: dict[str, CapacityMemory] = {}
        self._rates: dict[tuple[str, str], SteadyLevel] = {}

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Say what size the application should have, judging by this window and all before it."""
        if window.execution is Execution.SHARED_SLOTS:
            return _told_why(self._shared_slots.propose(window))
        if not window.queries:
            return NotReady("no query is active", "a query that reports metrics")
        ambiguous = shared_operator(window)
        if ambiguous is not None:
            return ambiguous
        needs: list[OperatorNeeds] = []
        notes: list[str] = []
        for query in window.queries:
            steadied, doubt = self._steadied(query)
            need = query_needs(steadied, window.parallelism, self._settings.ds2)
            if isinstance(need, NotReady):
                return need
            needs.append(self._learned(need, doubt, notes))
        return proposal(window, needs, "; ".join(notes))

    def learned(self) -> dict[str, dict[str, Any]]:
        """The capacities of each operator and, on shared slots, the costs of each query, for a later run."""
        capacities = {f"{CAPACITY}{name}": memory.to_plain() for name, memory in self._memories.items()}
        return {**capacities, **self._shared_slots.learned()}

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up what an earlier run has learned; what cannot be read is left out, and learned again."""
        useless: list[str] = []
        for key in (key for key in known if key.startswith(CAPACITY)):
            try:
                self._memories[key.removeprefix(CAPACITY)] = CapacityMemory.from_plain(known[key])
            except (TypeError, ValueError, IndexError, AttributeError) as error:
                useless.append(f"{key}: {error}")
        costs = {key: body for key, body in known.items() if not key.startswith(CAPACITY)}
        return (*useless, *self._shared_slots.recall(costs))

    def _steadied(self, query: QueryWindow) -> tuple[QueryWindow, _Doubt]:
        """The query with each offered rate as the mean of the last windows that agree, and its error."""
        if unread_source(query) is not None:
            return query, _Doubt()
        levels = {
            name: _kept(self._rates, (query.query_id, name), _drifting, MOST_SOURCES)
            for name in query.graph.sources
        }
        for name, level in levels.items():
            level.add(query.sources[name].offered_per_second)
        sources = {
            name: replace(query.sources[name], offered_per_second=level.mean)
            for name, level in levels.items()
        }
        return replace(query, sources=sources), _doubt(list(levels.values()))

    def _learned(self, need: OperatorNeeds, doubt: _Doubt, notes: list[str]) -> OperatorNeeds:
        wanted, exact = dict(need.wanted), dict(need.exact)
        for name, capacity in need.capacity.items():
            memory = _kept(self._memories, name, CapacityMemory, MOST_OPERATORS)
            memory.observe(need.held[name], capacity)
            needed = need.exact[name] * capacity / need.held[name]
            sized = self._sized(memory, need.held[name], needed, doubt)
            wanted[name], exact[name] = sized.wanted, sized.exact
            if sized.note:
                notes.append(f"{name}: {sized.note}")
        return replace(need, wanted=wanted, exact=exact)

    def _sized(self, memory: CapacityMemory, held: int, needed: float, doubt: _Doubt) -> _Sized:
        """The size for a capacity, where it can be told from what is held for all the noise."""
        exact = needed * held / memory.present()
        margin = 1 + SURE * math.hypot(doubt.error, memory.error)
        if whole_number(exact) >= held:
            small = exact <= held * (1 + SURE * doubt.noise)
            unsure = whole_number(exact / margin) <= held or (small and not doubt.settled)
            if unsure and whole_number(exact) > held:
                return _Sized(held, exact, f"{held} may be enough, for all that noise lets one tell")
            return self._by_curve(memory, held, needed, exact)
        safe = whole_number(exact * margin)
        # What is kept for safety now may look too much once more readings are in: a reduction that would not
        # be worth making even then is not begun. And nothing is lost by waiting until one step is enough.
        if whole_number(exact * margin**2) >= held or (safe > whole_number(exact) and not doubt.settled):
            return _Sized(held, exact, f"{held} may be needed, for all that noise lets one tell")
        return self._by_curve(memory, held, needed * margin, exact * margin, exact)

    def _by_curve(
        self, memory: CapacityMemory, held: int, needed: float, linear_need: float, exact: float | None = None
    ) -> _Sized:
        """DS2's own answer with the pooled capacity, or what the curve through the sizes seen makes of it."""
        linear, exact = whole_number(linear_need), linear_need if exact is None else exact
        noise = memory.noise
        if linear == held or noise is None:
            return _Sized(linear, exact)
        points = memory.points()
        if len(points) < self._settings.least_sizes:
            return _Sized(linear, exact)
        curve = CapacityCurve(points, noise)
        if linear > held:
            wanted = curve.size_to_grow_to(needed, linear, self._settings.max_instances)
        else:
            wanted = curve.size_to_shrink_to(needed, linear)
        note = f"{wanted}, not {linear}, by the capacity of {len(points)} sizes seen"
        return _Sized(wanted, exact, note if wanted != linear else "")


def _drifting() -> SteadyLevel:
    return SteadyLevel(drifts=True, presumed_noise=PRESUMED_NOISE)


def _doubt(levels: Sequence[SteadyLevel]) -> _Doubt:
    if not levels:
        return _Doubt()
    return _Doubt(
        error=max(level.error for level in levels),
        noise=max(level.noise or 0.0 for level in levels),
        settled=all(level.settled for level in levels),
    )


def _kept(entries: dict[Any, Any], key: Any, make: Any, most: int) -> Any:
    if key not in entries:
        entries[key] = make()
        while len(entries) > most:
            del entries[next(iter(entries))]
    return entries[key]


def _told_why(answer: Proposal | NotReady) -> Proposal | NotReady:
    if isinstance(answer, Hold | Scale):
        return replace(answer, reason=f"{answer.reason}; {ON_SLOTS}")
    return answer
