"""The search for a cheap placement of one operator's bins below a limit of load per slot.

Bins leave the worker that is furthest above the limit, or change places with lighter ones; what costs least
for the load that it takes off is done first. Then, round after round, a few of these moves are undone and the
limit is kept in another way, and the cheaper placement stays. Chance comes from a fixed seed, and work is
counted, not timed: the same state gives the same plan, and the time has a bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.migrate.packing import Floats, Packing, Places

Flags: TypeAlias = npt.NDArray[np.bool_]
Indices: TypeAlias = npt.NDArray[np.intp]

WORK = 8_000_000
"""Ways looked at in one search: about 0.2 s."""
RESERVE = 4 * WORK
"""More of it, so that thousands of bins can be moved at all."""
STEP = 2_000
"""Ways that could be looked at in the time in which a step is prepared."""
LIMITS_TRIED = 8
"""Halvings of the interval in which the least limit lies."""
KICKED = 4
"""The most moves that are undone in a round; more are hardly ever mended well."""
IN_VAIN = 150
"""Rounds without a cheaper placement after which the search ends."""
NOISE = 0.5
"""How far prices are off while mending, as the deviation of their logarithm: else the same is done again."""
SWAPS_FIRST = 0.25
"""The part of the rounds in which bins change places even where a single one could go."""
MOST_BINS = 64
"""Bins of the fullest worker that are looked at in a step: those that cost least for their load."""
MOST_OTHERS = 1000
"""Bins that these could change places with: those of the emptiest workers."""
TRIES = 100
"""Ways tried in turn to make the slowest worker faster."""
CHOICES = 8
"""Ways that do so, of which the cheapest is taken."""
TRY = 20
"""Ways that could be looked at in the time in which a bin is dealt out to a slot."""


@dataclass(slots=True)
class _Draft:
    """A placement that is being changed, with the load of each worker."""

    packing: Packing
    places: Places
    held: Floats

    @staticmethod
    def of(packing: Packing, places: Places) -> _Draft:
        return _Draft(packing, places.copy(), packing.held(places))

    def move(self, bin_: int, worker: int) -> None:
        load = self.packing.loads[bin_]
        self.held[self.places[bin_]] -= load
        self.held[worker] += load
        self.places[bin_] = worker


@dataclass(slots=True)
class Search:
    """One search, with the work that is left to it; the reserve is only for the first placement.

    `room` is the load that each worker may have, `hair` one too small to matter.
    """

    packing: Packing
    limit: float
    work: float
    reserve: float = 0.0
    rest: Places = field(init=False)
    bound: Flags = field(init=False)
    elsewhere: Floats = field(init=False)
    room: Floats = field(init=False)
    hair: float = field(init=False)
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rest, self.bound = self.packing.rest(), self.packing.is_bound()
        self.elsewhere = np.sort(self.packing.costs, axis=1)[:, :2].max(axis=1)
        self.room, self.hair = self.packing.slots * self.limit, self.packing.hair()
        self.random = np.random.default_rng(0)

    def rate(self, draft: _Draft) -> tuple[float, float]:
        """Return the load above the limit, then the cost."""
        over = float(np.maximum(0.0, draft.held - self.room).sum())
        return (over if over > self.hair else 0.0), self.packing.cost(draft.places)

    def find_worst(self, draft: _Draft) -> int | None:
        """Find the worker that is furthest above the limit, if one is."""
        over = draft.held - self.room
        worst = int((over / self.packing.slots).argmax())
        return worst if over[worst] > self.hair else None

    def mend(self, draft: _Draft, fixed: Flags, factors: Floats, swaps: bool) -> _Draft:
        """Shift bins until no worker is above the limit, or no step takes load above it away."""
        for _ in range(2 * len(draft.places) + 1):
            worst = self.find_worst(draft)
            if worst is None or self.work < -self.reserve:
                break
            mine = self._list_leaving(draft, worst, fixed, factors)
            ways = [self._pick_swap, self._pick_move] if swaps else [self._pick_move, self._pick_swap]
            if not any(pick(draft, worst, mine, fixed, factors) for pick in ways):
                break
        return draft

    def _list_leaving(self, draft: _Draft, worst: int, fixed: Flags, factors: Floats) -> Indices:
        """List the bins of a worker that cost least for the load that they take off."""
        mine: Indices = ((draft.places == worst) & ~fixed).nonzero()[0]
        if len(mine) <= MOST_BINS:
            return mine
        price = np.where(self.rest[mine] == worst, self.elsewhere[mine], -self.elsewhere[mine])
        useful = np.minimum(self.packing.loads[mine], draft.held[worst] - self.room[worst])
        return mine[np.argpartition(price * factors[mine] / useful, MOST_BINS)[:MOST_BINS]]

    def _list_others(self, draft: _Draft, worst: int, fixed: Flags) -> Indices:
        """List bins of other workers, of the emptiest first."""
        others: Indices = ((draft.places != worst) & ~fixed).nonzero()[0]
        if len(others) <= MOST_OTHERS:
            return others
        per_slot = (draft.held / self.packing.slots)[draft.places[others]]
        return others[np.argpartition(per_slot, MOST_OTHERS)[:MOST_OTHERS]]

    def _pick_move(self, draft: _Draft, worst: int, mine: Indices, _: Flags, factors: Floats) -> bool:
        """Move the bin that costs least for what it takes off, to the worker with most room."""
        loads, costs = self.packing.loads[mine, None], self.packing.costs[mine]
        gain = self._gain(draft, worst, loads, draft.held[None, :], self.room[None, :])
        gain[:, worst] = 0.0
        price = (costs - costs[:, worst, None]) * factors[mine, None]
        ratio = self._ratio(price, gain)
        if not np.isfinite(ratio).any():
            return False
        cheapest, targets = np.nonzero(ratio <= ratio.min() + 1e-12)
        room = (self.room - draft.held) / self.packing.slots
        chosen = int(room[targets].argmax())
        draft.move(int(mine[cheapest[chosen]]), int(targets[chosen]))
        return True

    def _pick_swap(self, draft: _Draft, worst: int, mine: Indices, fixed: Flags, factors: Floats) -> bool:
        """Let the two bins change places that cost least for what this takes off."""
        others = self._list_others(draft, worst, fixed)
        loads, costs, at = self.packing.loads, self.packing.costs, draft.places[others]
        lighter = loads[mine, None] - loads[None, others]
        gain = self._gain(draft, worst, lighter, draft.held[None, at], self.room[None, at])
        there = (costs[mine][:, at] - costs[mine, worst, None]) * factors[mine, None]
        back = (costs[others, worst] - costs[others, at]) * factors[others]
        ratio = self._ratio(there + back[None, :], gain)
        if not np.isfinite(ratio).any():
            return False
        first, second = divmod(int(ratio.argmin()), len(others))
        target = int(at[second])
        draft.move(int(mine[first]), target)
        draft.move(int(others[second]), worst)
        return True

    def _gain(self, draft: _Draft, worst: int, shifted: Floats, held: Floats, room: Floats) -> Floats:
        """Return how much load above the limit goes when so much is shifted from the worst worker."""
        taken = np.minimum(shifted, draft.held[worst] - self.limit * self.packing.slots[worst])
        gain: Floats = taken - (np.maximum(0.0, held + shifted - room) - np.maximum(0.0, held - room))
        self.work -= STEP + gain.size
        return gain

    def _ratio(self, price: Floats, gain: Floats) -> Floats:
        useful = gain > self.hair
        ratio: Floats = np.where(useful, price, np.inf) / np.where(useful, gain, 1.0)
        return ratio

    def send_back(self, draft: _Draft) -> _Draft:
        """Send bins back to where they cost least, the dearest first, while the limit allows it."""
        rest, costs, room = self.rest, self.packing.costs, self.room
        away = (draft.places != rest).nonzero()[0]
        saved = costs[away, draft.places[away]] - costs[away, rest[away]]
        for bin_ in away[np.argsort(-saved, kind="stable")].tolist():
            home = int(rest[bin_])
            if draft.held[home] + self.packing.loads[bin_] <= room[home] + self.hair:
                draft.move(bin_, home)
        return draft

    def kick(self, places: Places) -> tuple[_Draft, Flags]:
        """Undo a few moves; return with it the bins that must stay where they are now."""
        draft, fixed = _Draft.of(self.packing, places), self.bound.copy()
        worst, rest = self.find_worst(draft), self.rest
        count = int(self.random.integers(1, KICKED + 1))
        if worst is None:
            away = (draft.places != rest).nonzero()[0]
            for bin_ in self.random.permutation(away)[:count].tolist():
                draft.move(bin_, int(rest[bin_]))
                fixed[bin_] = True
            return draft, fixed
        near = (draft.places == worst) | (draft.places == self.random.integers(len(self.packing.slots)))
        for bin_ in self.random.permutation((near & ~fixed).nonzero()[0])[:count].tolist():
            draft.move(bin_, self._draw_worker(bin_))
        return draft, fixed

    def _draw_worker(self, bin_: int) -> int:
        """Draw one of the workers that may have a bin."""
        (allowed,) = np.isfinite(self.packing.costs[bin_]).nonzero()
        return int(allowed[self.random.integers(len(allowed))])

    def move_one(self, places: Places, bin_: int, worker: int) -> Places | None:
        """Move a bin and mend the rest; none where that does not keep the limit."""
        draft, fixed = _Draft.of(self.packing, places), self.bound.copy()
        draft.move(bin_, worker)
        fixed[bin_] = True
        self.mend(draft, fixed, np.ones(len(places)), swaps=False)
        return draft.places if self.find_worst(draft) is None else None

    def run(self, starts: Iterable[Places], enough: float) -> Places:
        """Search until the work is done, or a placement below the limit costs no more than `enough`."""
        plain = np.ones(len(self.packing.loads))
        drafts = [
            self.send_back(self.mend(_Draft.of(self.packing, start), self.bound, plain, swaps=False))
            for start in starts
        ]
        best = min(drafts, key=self.rate)
        least, in_vain = self.rate(best), 0
        while self.work > 0 and in_vain < IN_VAIN and (least[0] > 0 or least[1] > enough):
            self.work -= STEP
            kicked, fixed = self.kick(best.places)
            factors = np.exp(NOISE * self.random.standard_normal(len(plain)))
            swaps = self.random.random() < SWAPS_FIRST
            tried = self.send_back(self.mend(kicked, fixed, factors, swaps))
            rated = self.rate(tried)
            in_vain = 0 if rated < least else in_vain + 1
            if rated <= least:
                best, least = tried, rated
        return best.places


def find_cheapest(packing: Packing, limit: float, starts: Iterable[Places], work: float = WORK) -> Places:
    """Find a cheap placement in which no worker has more load per slot than the limit.

    Where the search finds none, return the one that exceeds the limit least.
    """
    nothing_moves = packing.cost(packing.rest())
    return Search(packing, limit, work, RESERVE).run(starts, nothing_moves)


def find_evenest(packing: Packing, near_enough: float, work: float = WORK) -> Places:
    """Find a placement whose fullest worker has little load per slot, whatever it costs.

    The search ends once it is known to be within `near_enough` of the least.
    """
    dealt = place_heaviest_first(packing)
    best = min(packing.rest(), dealt, key=packing.fullest)
    low = packing.least_fullest()
    for _ in range(LIMITS_TRIED):
        high = packing.fullest(best)
        if high - low <= near_enough:
            break
        limit = max(low + near_enough / 2, (low + high) / 2 - near_enough)
        found = Search(packing, limit, work / LIMITS_TRIED).run([best, dealt], np.inf)
        best = min(best, found, key=packing.fullest)
        if packing.fullest(best) > limit + packing.hair():
            low = limit
    return best


def place_heaviest_first(packing: Packing) -> Places:
    """Place the bins from the heaviest on, each at the worker with the least load per slot."""
    places, bound = packing.rest(), packing.is_bound()
    held = np.bincount(places[bound], packing.loads[bound], len(packing.slots)).astype(np.float64)
    for bin_ in np.argsort(-packing.loads, kind="stable").tolist():
        if not bound[bin_]:
            allowed = np.isfinite(packing.costs[bin_])
            after = np.where(allowed, (held + packing.loads[bin_]) / packing.slots, np.inf)
            places[bin_] = int(after.argmin())
            held[places[bin_]] += packing.loads[bin_]
    return places


def part_queues(packing: Packing, places: Places, limit: float, enough: float, work: float = WORK) -> Places:
    """Change a placement below the limit until no worker takes longer than `enough`, or no way is found.

    A bin leaves the worker that takes longest, and others make room for it.
    """
    search = Search(packing, limit, work)
    late = _measure_late(packing, places, enough)
    while late > 0 and search.work > 0:
        ways: list[tuple[float, float, int, Places]] = []
        for number, (bin_, worker) in enumerate(_list_ways_out(packing, places)):
            tried = search.move_one(places, bin_, worker)
            left = late if tried is None else _measure_late(packing, tried, enough)
            if tried is not None and left < late - packing.hair():
                ways.append((packing.cost(tried), left, number, tried))
            search.work -= TRY * len(places)
            if search.work < 0 or len(ways) == CHOICES:
                break
        if not ways:
            break
        _, late, _, places = min(ways, key=lambda way: way[:3])
    return places


def _measure_late(packing: Packing, places: Places, enough: float) -> float:
    """Return by how much workers take longer than is enough, together."""
    times = (packing.finish(places, worker) for worker in range(len(packing.slots)))
    return sum(max(0.0, time - enough - packing.hair()) for time in times)


def _list_ways_out(packing: Packing, places: Places) -> list[tuple[int, int]]:
    """List bins of the worker that takes longest and where they could go; the cheapest way first."""
    slowest = max(range(len(packing.slots)), key=lambda worker: packing.finish(places, worker))
    mine = np.flatnonzero((places == slowest) & ~packing.is_bound())
    mine = mine[np.argsort(-packing.loads[mine], kind="stable")][:MOST_BINS]
    price = packing.costs[mine] - packing.costs[mine, slowest, None]
    price[:, slowest] = np.inf
    first, workers = np.unravel_index(np.argsort(price, axis=None, kind="stable")[:TRIES], price.shape)
    ways = zip(mine[first].tolist(), workers.tolist(), price[first, workers].tolist(), strict=True)
    return [(bin_, worker) for bin_, worker, cost in ways if np.isfinite(cost)]
