"""DS2 with learned capacity: one step where linear extrapolation needs several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.dataflow.propagation import round_up
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, OperatorQuery, OperatorWindow, SlotWindow
from penstock.decide.ds2.capacity import FEW, CapacityMemory, SteadyLevel
from penstock.decide.ds2.curve import CapacityCurve
from penstock.decide.ds2.policy import OperatorNeeds, make_proposal, size_operator_query
from penstock.decide.ds2.settings import LearnedSettings
from penstock.decide.ds2.slots import SharedSlots
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.lost import LostInstances, add_lost
from penstock.decide.policy import Hold, Proposal, Scale
from penstock.decide.readings import find_shared_operator, find_unread_source

MOST_OPERATORS = 4096
MOST_SOURCES = 1024
"""Operators and sources that are remembered; the oldest are dropped for new ones."""
CAPACITY = "capacity of "
"""The prefix of keys of remembered capacities; the rest is the operator."""
SURE = 3.0
"""Standard errors of rate and capacity by which the need must differ from the size held."""
PRESUMED_NOISE = 0.1
"""The noise of offered rates until it is known: only larger differences are acted on."""
ON_SLOTS = "on shared slots it sizes as DS2 does, by costs fitted for each number of slots"


@dataclass(frozen=True, slots=True)
class _Sized:
    wanted: int
    exact: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Doubt:
    """The uncertainty of offered rates: standard error, noise of one window, and whether that will last.

    `risen` is what the last few windows may be times the mean of all, noise counted in.
    """

    error: float = 0.0
    risen: float = 1.0
    noise: float = 0.0
    settled: bool = True


class LearnedDs2Policy:
    """Sizes operators by a curve through every (parallelism, capacity) pair seen, not by a line."""

    name = "ds2-learned"
    memory_kind = "capacity"

    def __init__(self, settings: LearnedSettings, bounds: SizeBounds, goals: Goals) -> None:
        self._settings, self._bounds, self._goals = settings, bounds, goals
        self._shared_slots = SharedSlots(goals)
        self._memories: dict[str, CapacityMemory] = {}
        self._rates: dict[tuple[str, str], SteadyLevel] = {}
        self._lost = LostInstances()

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Propose sizes, by this window and all before it."""
        if isinstance(window, SlotWindow):
            return _add_reason(self._shared_slots.propose(window))
        living, lost = self._lost.leave_out(window)
        return add_lost(self._propose_per_operator(living), lost)

    def _propose_per_operator(self, window: OperatorWindow) -> Proposal | NotReady:
        if not window.queries:
            return NotReady("no query is active", "a query that reports metrics")
        ambiguous = find_shared_operator(window)
        if ambiguous is not None:
            return ambiguous
        needs: list[OperatorNeeds] = []
        notes: list[str] = []
        for query in window.queries:
            steadied, doubt = self._steady_rates(query)
            need = size_operator_query(steadied, window.parallelism, self._goals)
            if isinstance(need, NotReady):
                return need
            needs.append(self._apply_curves(need, doubt, notes))
        return make_proposal(window, needs, "; ".join(notes))

    def learned(self) -> dict[str, dict[str, Any]]:
        """Return the capacities of operators and, on slots, the costs of queries, for a later run."""
        capacities = {f"{CAPACITY}{name}": memory.to_plain() for name, memory in self._memories.items()}
        return {**capacities, **self._shared_slots.learned()}

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up what an earlier run has learned; unreadable entries are named and learned again."""
        useless: list[str] = []
        for key in (key for key in known if key.startswith(CAPACITY)):
            try:
                self._memories[key.removeprefix(CAPACITY)] = CapacityMemory.from_plain(known[key])
            except (TypeError, ValueError, IndexError, AttributeError) as error:
                useless.append(f"{key}: {error}")
        costs = {key: body for key, body in known.items() if not key.startswith(CAPACITY)}
        return (*useless, *self._shared_slots.recall(costs))

    def _steady_rates(self, query: OperatorQuery) -> tuple[OperatorQuery, _Doubt]:
        """Replace each offered rate by the mean of the last windows that agree, with its uncertainty."""
        if find_unread_source(query) is not None:
            return query, _Doubt()
        levels = {
            name: _get_or_make(self._rates, (query.query_id, name), _make_level, MOST_SOURCES)
            for name in query.graph.sources
        }
        for name, level in levels.items():
            level.add(query.sources[name].offered_per_second)
        sources = {
            name: replace(query.sources[name], offered_per_second=level.mean)
            for name, level in levels.items()
        }
        return replace(query, sources=sources), _estimate_doubt(list(levels.values()))

    def _apply_curves(self, need: OperatorNeeds, doubt: _Doubt, notes: list[str]) -> OperatorNeeds:
        wanted, exact = dict(need.wanted), dict(need.exact)
        for name, capacity in need.capacity.items():
            memory = _get_or_make(self._memories, name, CapacityMemory, MOST_OPERATORS)
            memory.observe(need.held[name], capacity)
            needed = need.exact[name] * capacity / need.held[name]
            sized = self._size(memory, need.held[name], needed, doubt)
            wanted[name], exact[name] = sized.wanted, sized.exact
            if sized.note:
                notes.append(f"{name}: {sized.note}")
        return replace(need, wanted=wanted, exact=exact)

    def _size(self, memory: CapacityMemory, held: int, needed: float, doubt: _Doubt) -> _Sized:
        """Size for a capacity, or hold where noise may explain the difference."""
        exact = needed * held / memory.present()
        margin = 1 + SURE * math.hypot(doubt.error, memory.error)
        if round_up(exact) >= held:
            return self._size_up(memory, held, needed, doubt, margin)
        safe = round_up(exact * margin)
        # More readings narrow the margin, and then a smaller size may do: wait until one step is enough, and
        # begin no reduction that would vanish with a wider margin.
        if round_up(exact * margin**2) >= held or (safe > round_up(exact) and not doubt.settled):
            return _Sized(held, exact, f"{held} may be needed, for all that noise lets one tell")
        sized = self._size_by_curve(memory, held, needed * margin, exact * margin, exact)
        least = min(held, memory.least_known_enough(needed))
        if sized.wanted >= least:
            return sized
        return _Sized(least, exact, f"{least - 1} was seen to be too small, whatever {held} can do")

    def _size_up(
        self, memory: CapacityMemory, held: int, needed: float, doubt: _Doubt, margin: float
    ) -> _Sized:
        """Grow, or hold where noise may explain the need; never where the held size may be too small.

        Headroom is there for doubt: once noise may hide that all of it is used, waiting for certainty would
        be paid with records that wait.
        """
        exact, utilisation = needed * held / memory.present(), self._goals.utilisation
        most = max(margin, doubt.risen)
        if round_up(exact) > held and utilisation < 1 and exact * most * utilisation >= held:
            return self._size_by_curve(memory, held, needed * most, exact * most)
        small = exact <= held * (1 + SURE * doubt.noise)
        unsure = round_up(exact / margin) <= held or (small and not doubt.settled)
        if unsure and round_up(exact) > held:
            return _Sized(held, exact, f"{held} may be enough, for all that noise lets one tell")
        return self._size_by_curve(memory, held, needed, exact)

    def _size_by_curve(
        self, memory: CapacityMemory, held: int, needed: float, linear_need: float, exact: float | None = None
    ) -> _Sized:
        """Size by the curve through the sizes seen; with too few of them, as DS2 does."""
        linear, exact = round_up(linear_need), linear_need if exact is None else exact
        noise = memory.noise
        if linear == held or noise is None:
            return _Sized(linear, exact)
        points = memory.points()
        if len(points) < self._settings.least_sizes:
            return _Sized(linear, exact)
        curve = CapacityCurve(points, noise)
        if linear > held:
            wanted = curve.size_to_grow_to(needed, linear, self._bounds.most)
        else:
            wanted = curve.size_to_shrink_to(needed, linear)
        note = f"{wanted}, not {linear}, by the capacity of {len(points)} sizes seen"
        return _Sized(wanted, exact, note if wanted != linear else "")


def _make_level() -> SteadyLevel:
    return SteadyLevel(drifts=True, presumed_noise=PRESUMED_NOISE)


def _estimate_doubt(levels: Sequence[SteadyLevel]) -> _Doubt:
    if not levels:
        return _Doubt()
    return _Doubt(
        error=max(level.error for level in levels),
        risen=max(map(_find_rise, levels)),
        noise=max(level.noise or 0.0 for level in levels),
        settled=all(level.settled for level in levels),
    )


def _find_rise(level: SteadyLevel) -> float:
    newest = level.newest / level.mean if level.mean > 0 else 1.0
    return newest * (1 + (level.noise or 0.0) / math.sqrt(FEW))


def _get_or_make(entries: dict[Any, Any], key: Any, make: Any, most: int) -> Any:
    if key not in entries:
        entries[key] = make()
        while len(entries) > most:
            del entries[next(iter(entries))]
    return entries[key]


def _add_reason(answer: Proposal | NotReady) -> Proposal | NotReady:
    if isinstance(answer, Hold | Scale):
        return replace(answer, reason=f"{answer.reason}; {ON_SLOTS}")
    return answer
