"""How long a change takes, how many spares failures ask for, and when less has paid for itself."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

DELAYS_KEPT = 12
LONGEST_MEMORY = 3600.0
MOST_SPARES = 3
LEAST_TIMES = 0.1
"""The share of the usual risk that is taken at the least, however often a size was too small."""
FIRST_LIFE = 6 * 3600.0
"""Seconds of observation that count as having seen no failure: one death is not yet a habit."""


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

    A time that is short halves the risk, any other raises it by the rate at which both balance where the
    share of times that are short is the risk (adaptive conformal inference, Gibbs and Candès 2021, with
    steps in the logarithm).
    """

    risk: float
    times: float = 1.0

    def look(self, is_short: bool) -> None:
        """Note whether a window was short."""
        step = -1.0 if is_short else self.risk
        self.times = min(1.0, max(LEAST_TIMES, self.times * 2**step))


@dataclass(slots=True)
class Savings:
    """The needs of one unit in the last hour: a smaller size is taken once it has paid for the change."""

    _needs: deque[tuple[float, int]] = field(default_factory=deque)

    def note(self, now: float, need: int) -> None:
        """Keep a need; those that were smaller and older say nothing any more."""
        while self._needs and self._needs[-1][1] <= need:
            self._needs.pop()
        self._needs.append((now, need))
        while len(self._needs) > 1 and self._needs[0][0] < now - LONGEST_MEMORY:
            self._needs.popleft()

    def find_paid(self, now: float, since: float, held: int, price: float) -> int:
        """Return the least size that would have saved the price since the need last exceeded it.

        `since` is when the held size came: nothing was saved on it before. It is what a traveller does who
        rents until the rent has reached the price of buying: never twice as dear as knowing the future.
        """
        best, last_larger = held, since
        for at, need in self._needs:
            if need < held and (held - need) * (now - max(since, last_larger)) >= price:
                best = need
            last_larger = at
        return best
