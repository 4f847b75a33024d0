"""How long a change takes, how many spares failures ask for, and when less has paid for itself."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

DELAYS_KEPT = 12
LONGEST_MEMORY = 3600.0
MOST_SPARES = 3
MOST_PATIENCE = 8.0
WELL_PAID = 4.0
"""Times the price of a change that a smaller size has to have saved for it to have been worth going there."""
LEAST_TIMES = 0.1
"""The share of the usual risk that is taken at the least, however often a size was too small."""
FIRST_LIFE = 6 * 3600.0
"""Seconds of observation that count as having seen no failure: one death is not yet a habit."""


class Look(NamedTuple):
    """How far a look goes, beyond the next change or up to it, and how many times the risk it takes."""

    beyond: bool
    times: float


HOLD, URGENT, GROW, SHRINK = Look(False, 5.0), Look(False, 20.0), Look(True, 15.0), Look(True, 2.0)
"""What is held has to do until the next decision takes effect, a size that is taken until the one after it.
In most moments more is held than is needed, since sizes are whole and are kept a while: for the risk over
all of them to be the one asked for, it may be some times as large in a moment. What may come after the next
change counts less, as few moments are followed by one; and a size is shrunk to with less risk than it would
be kept for, or it would soon grow again."""
HOLD_SLOTS, URGENT_SLOTS = Look(False, 15.0), Look(False, 60.0)
"""On slots useful sizes lie a wave of tasks apart, up to half as much again, so more is held than is needed
in more of the moments still."""
MOST_EARLY = 0.2
"""The share of a size that is taken early at the most, to save later changes."""


def choose_size(held: int, asked: int, hold: int, urgent: int, grow: int, shrink: int, lot: int) -> int:
    """Return what is needed, by the sizes of each look: more, what is held, or less.

    Growth waits for a second window that asks for it (`asked` is what the last one did), unless it is urgent:
    the risk is one over time, and the noise of a reading is gone with the next.
    """
    if min(hold, max(asked, urgent)) > held:
        return max(grow, hold + lot)
    return min(held, max(hold, shrink))


def find_lot(need: int, rising: float, price: float) -> int:
    """Return how much more to take at once while a load rises (the economic order quantity).

    Each instance that comes early costs until it is needed, each change its price; where the load grows by
    the share `rising` of itself in a second, changes by √(2 · price · rising) of the need cost least.
    """
    return math.floor(min(math.sqrt(2 * price * rising), MOST_EARLY) * need)


@dataclass(slots=True)
class ChangeClock:
    """Measures how long changes take, from the window that asked to the first one that has the new size."""

    first: float
    samples: deque[float] = field(default_factory=lambda: deque(maxlen=DELAYS_KEPT))
    _asked: tuple[float, Mapping[str, int]] | None = None
    _held: Mapping[str, int] | None = None

    def ask(self, now: float, wanted: Mapping[str, int]) -> None:
        """Note that a size was asked for; while one is under way nobody asks again."""
        self._asked = (now, dict(wanted))

    def forget(self) -> None:
        """Forget when the change under way was asked for."""
        self._asked = None

    def look(self, now: float, held: Mapping[str, int]) -> bool:
        """Note what is held; return whether that has changed since the last look."""
        changed = self._held is not None and dict(held) != dict(self._held)
        if changed and self._asked is not None:
            self.samples.append(max(0.0, now - self._asked[0]))
            self._asked = None
        self._held = dict(held)
        return changed

    @property
    def delay(self) -> float:
        """How long a change is taken to last: the mean of those seen and a standard deviation."""
        if not self.samples:
            return self.first
        mean = sum(self.samples) / len(self.samples)
        spread = math.sqrt(sum((one - mean) ** 2 for one in self.samples) / len(self.samples))
        return mean + spread


@dataclass(slots=True)
class Deaths:
    """Counts instances that die, and says how many spares keep the risk below its level."""

    observed: float = FIRST_LIFE
    count: int = 0
    _dead: int = 0

    def look(self, seconds: float, dead: int) -> None:
        """Note how many instances are held and do nothing."""
        self.observed += seconds
        self.count += max(0, dead - self._dead)
        self._dead = dead

    def spares(self, exposure: float, risk: float) -> int:
        """Return the fewest spares that as many deaths within the exposure exceed with this risk only."""
        if not self.count:
            return 0
        from scipy.special import pdtrc  # takes longer to load than all policies, and few runs see a death

        expected = self.count / self.observed * exposure
        return next((k for k in range(MOST_SPARES) if pdtrc(k, expected) <= risk), MOST_SPARES)


@dataclass(slots=True)
class Caution:
    """Takes less risk after having been short, and more again while it is not.

    The beginning of a short time halves the risk, any other window raises it by the rate at which both
    balance where the share of windows in which one begins is the risk (adaptive conformal inference, Gibbs
    and Candès 2021, with steps in the logarithm). A jump that nobody could foresee counts once.
    """

    risk: float
    times: float = 1.0
    _was_short: bool = False

    def look(self, is_short: bool) -> None:
        """Note whether a window was short."""
        begins, self._was_short = is_short and not self._was_short, is_short
        step = -1.0 if begins else self.risk
        self.times = min(1.0, max(LEAST_TIMES, self.times * 2**step))


@dataclass(slots=True)
class Savings:
    """The needs of one unit in the last hour: a smaller size is taken once it has paid for the change."""

    patience: float = 2.0
    """Times the price that has to be saved before less is taken: going there and, at first, back again."""
    _needs: deque[tuple[float, int]] = field(default_factory=deque)
    _shrunk: tuple[float, int] | None = None
    """When the size shrank last, and by how much, if it has not grown since."""

    def change(self, now: float, before: int, held: int, price: float) -> None:
        """Note another size: steps down in a row never come back, one that is soon undone was too early."""
        if self._shrunk is not None:
            at, by = self._shrunk
            if held < before:
                self.patience = max(1.0, self.patience / 2)
            elif by * (now - at) < WELL_PAID * price:
                self.patience = min(MOST_PATIENCE, self.patience * 2)
        self._shrunk = (now, before - held) if held < before else None

    def note(self, now: float, need: int) -> None:
        """Keep a need; those that were smaller and older say nothing any more."""
        while self._needs and self._needs[-1][1] <= need:
            self._needs.pop()
        self._needs.append((now, need))
        while len(self._needs) > 1 and self._needs[0][0] < now - LONGEST_MEMORY:
            self._needs.popleft()

    def find_paid(self, now: float, since: float, held: int, price: float, settled: float) -> int:
        """Return what the last `settled` seconds needed at most, once following the need had saved the price.

        `since` is when the held size came: nothing was saved on it before. It is what a traveller does who
        rents until the rent has reached the price of buying: never twice as dear as knowing the future.
        """
        saved, last_larger = 0.0, since
        for at, need in self._needs:
            saved += max(0, held - need) * max(0.0, at - last_larger)
            last_larger = max(since, at)
        needed = next((need for at, need in self._needs if at > now - settled), held)
        return min(held, needed) if saved >= price * self.patience else held
