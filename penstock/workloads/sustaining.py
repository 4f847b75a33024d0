"""Whether a run shows that a rate is sustained, or that it is not, or was too short to tell. Pure.

The backlog's growth is the slope of a line through few points, so it is known within an interval only: the
rate is sustained if all of the interval is below what counts as growth, and not if all of it is above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.workloads.arrivals import MOST_GROWTH, LoadOutcome
from penstock.workloads.profiles import Bursts, Profile, Sine

LEAST_BATCHES = 5
"""With fewer, the scatter around the line is anyone's guess."""
CONFIDENCE = 0.95
"""Of either answer."""
MOST_TIMES = 8.0
"""Longer than this many times the run is not asked for at once: the next run will know better."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer, None where the run cannot tell; then with how long a run should be."""

    sustained: bool | None
    why: str
    longer_seconds: float | None = None


def judge(found: LoadOutcome, profile: Profile) -> Judgement:
    """What the run shows about the rate that was offered."""
    if found.batches < LEAST_BATCHES:
        return too_few(found.batches, found.seconds)
    if found.seconds < (period := _period(profile)):
        why = f"{found.seconds:.0f} s are less than one period of the load, {period:g} s"
        return _unsure(found.seconds, why, 1.5 * period)
    return _by_interval(found)


def too_few(batches: int, seconds: float) -> Judgement:
    """What can be said when hardly any batch ended: how long five would take, and half as long again."""
    counted = {0: "no batch", 1: "only one batch"}.get(batches, f"only {batches} batches")
    why = f"{counted} ended in {seconds:.0f} s, and {LEAST_BATCHES} are the fewest that tell"
    return _unsure(seconds, why, 1.5 * LEAST_BATCHES * seconds / max(batches, 1))


def _by_interval(found: LoadOutcome) -> Judgement:
    most = MOST_GROWTH * found.offered_per_second
    half = found.backlog_growth_error * _student(found.batches - 2)
    low, high = (found.backlog_growth_per_second + side * half for side in (-1, 1))
    why = f"the backlog grows by {low:,.0f} to {high:,.0f} records/s; {most:,.0f} or less counts as no growth"
    if high <= most or low > most:
        return Judgement(bool(high <= most), why)
    # by least squares the error shrinks with the run's length to the power of 3/2
    apart = abs(found.backlog_growth_per_second - most)
    times = min((half / apart) ** (2 / 3), MOST_TIMES) if apart else MOST_TIMES
    return _unsure(found.seconds, why, found.seconds * times)


def _unsure(seconds: float, why: str, needed: float) -> Judgement:
    """Whole tens of seconds, and at least half as long again as this run."""
    return Judgement(None, why, 10.0 * math.ceil(max(needed, 1.5 * seconds) / 10))


def _student(freedom: int) -> float:
    """How many errors the interval reaches to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, CONFIDENCE))


def _period(profile: Profile) -> float:
    """Within one period the backlog comes and goes with the load."""
    match profile:
        case Sine(amplitude=amplitude, period=period) if amplitude > 0:
            return period
        case Bursts(base=base, peak=peak, every=every) if peak > base:
            return every
        case _:
            return 0.0
