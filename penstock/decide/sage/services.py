"""Remote services that explain a backlog, and the watch over them (section 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from penstock.dataflow.metrics import Floats
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.sage.columns import Bools
from penstock.decide.sage.metrics import backlog_of
from penstock.errors import BadMetrics

LEAST_PAIRS = 4
"""Fewer pairs correlate by chance: three points on a rising line always do."""

WORSE = {"latency_seconds": 1.0, "error_ratio": 1.0, "throughput_per_second": -1.0}
"""Aspect → whether more of it is worse, or less."""
ASPECTS = tuple(WORSE)
SAMPLES = 30
BEFORE = 30
"""Samples from before a service became slow that are kept for as long as it explains the backlog."""
LEAST_ORDERS = 999
"""Fewer, which are the same each time, favour some samples over others."""
ORDERS_KEPT = 12
"""Counts of samples whose orders are kept: a watch soon stays at one; with few false alarms each is large."""
LEAST_FOR_MEMORY = 6
MOST_MEMORY = 0.95
LAGS = (0, 1, 2, 3)
"""In windows: a slow service shows in the backlog of the same or of one of the next windows."""


@dataclass(frozen=True, slots=True)
class ServiceTest:
    """When a service explains a backlog: how closely it is followed, and how seldom by chance.

    `false_alarms` is the share of looks in which services that vary at random are taken for the cause, all
    services, aspects and lags together.
    """

    lags: tuple[int, ...] = LAGS
    least_correlation: float = 0.7
    false_alarms: float = 0.01

    @property
    def orders(self) -> int:
        """The random orders that a chance is counted in: enough to tell a tenth of the false alarms."""
        return max(LEAST_ORDERS, math.ceil(10 / self.false_alarms) - 1)


@dataclass(frozen=True, slots=True)
class ServiceReading:
    """One service at one time; an aspect that was not given is NaN."""

    name: str
    at: float
    latency_seconds: float = math.nan
    error_ratio: float = math.nan
    throughput_per_second: float = math.nan


@dataclass(frozen=True, slots=True)
class Correlation:
    """How closely the backlog follows one aspect of a service, and how many samples later."""

    service: str
    aspect: str
    lag: int
    coefficient: float

    @property
    def reason(self) -> str:
        """In plain words."""
        later = f", {self.lag} samples later" if self.lag else ""
        what = self.aspect.rpartition("_")[0] or self.aspect
        return f"the backlog follows the {what} of {self.service} (correlation {self.coefficient:.2f}{later})"


def correlate(cause: Floats, effect: Floats, lag: int) -> float:
    """Return Pearson's coefficient of the effect with the cause `lag` samples earlier; NaN if undefined."""
    if lag < 0:
        raise BadMetrics(f"an effect cannot come before its cause: the lag is {lag}")
    if len(cause) != len(effect):
        raise BadMetrics(f"{len(cause)} samples of the cause, {len(effect)} of the effect")
    # fewer samples than the lag are none; a negative end would count from the back
    first, second = cause[: max(0, len(cause) - lag)], effect[lag:]
    known = np.isfinite(first) & np.isfinite(second)
    first, second = first[known], second[known]
    count = len(first)
    if count < LEAST_PAIRS or first.min() == first.max() or second.min() == second.max():
        return math.nan
    first, second = first - first.sum() / count, second - second.sum() / count
    spread = math.sqrt(float(first @ first)) * math.sqrt(float(second @ second))
    return max(min(float(first @ second) / spread, 1.0), -1.0) if spread > 0 else math.nan


def find_strongest(
    growth: Floats, services: Mapping[str, Mapping[str, Floats]], lags: Sequence[int] = LAGS
) -> Correlation | None:
    """Find the service, aspect and lag that explain the backlog's growth best; None if nothing is measured.

    `services` has what each published of its aspects, in the same samples as the growth.

    Growth is compared, not the backlog itself: a backlog adds up what a slow service leaves behind, and any
    two rising lines correlate.
    """
    found = [
        Correlation(service, aspect, lag, correlate(WORSE[aspect] * values, growth, lag))
        for service, aspects in services.items()
        for aspect, values in aspects.items()
        for lag in lags
    ]
    known = [one for one in found if not math.isnan(one.coefficient)]
    return max(known, key=lambda one: one.coefficient, default=None)


def measure_chance(
    growth: Floats,
    causes: Sequence[Floats],
    lags: Sequence[int],
    coefficient: float,
    orders: int,
    memory: float = 0.0,
) -> float:
    """Return how often growth in a random order follows any of the causes at any lag as closely as this.

    A permutation test of the largest correlation: it holds for few samples and for any distribution, and more
    causes or lags make a chance larger. The order as it was is one of them, so that no chance is zero.
    """
    known = np.isfinite(growth)
    shuffled = draw_orders(growth, known, memory, orders)
    most = np.full(orders, -np.inf)
    for cause in causes:
        for lag in lags:
            most = np.maximum(most, _correlate_orders(cause, shuffled, known, lag))
    return float(1 + np.count_nonzero(most >= coefficient - 1e-9)) / (orders + 1)


def draw_orders(growth: Floats, known: Bools, memory: float, orders: int) -> Floats:
    """Return so many series like this one, around zero: what is new in each sample comes in random order.

    Two series that change slowly often go together for a while. So each sample of a series keeps that part of
    the one before which is its memory; without memory the samples themselves are in random order.
    """
    centred = growth[known] - growth[known].mean()
    keeps = math.sqrt(1 - memory**2)
    news = np.concatenate([centred[:1] * keeps, centred[1:] - memory * centred[:-1]])
    drawn = news[_list_orders(len(news), orders)]
    drawn[:, :1] /= keeps
    for number in range(1, drawn.shape[1] if memory else 0):
        drawn[:, number] += memory * drawn[:, number - 1]
    shuffled = np.zeros((orders, len(growth)))
    shuffled[:, known] = drawn
    return shuffled


@lru_cache(maxsize=ORDERS_KEPT)
def _list_orders(count: int, orders: int) -> npt.NDArray[np.uint16]:
    """Return so many orders of the numbers below `count`, one in each row.

    They are the same each time, so that the same samples give the same answer, and drawn once, since a watch
    asks for them at every window.
    """
    numbers = np.tile(np.arange(count, dtype=np.int64), (orders, 1))
    drawn = np.random.default_rng(0).permuted(numbers, axis=1)
    return drawn.astype(np.uint16)


def estimate_memory(values: Floats) -> float:
    """Return which part of its distance from the usual a sample passes on to the next, from 0 to 0.95: AR(1).

    A change of level is left out, since a service that becomes slow must not look like noise that lasts.
    """
    values = values[np.isfinite(values)]
    count = len(values)
    if count < LEAST_FOR_MEMORY:
        return 0.0
    rest = min((_remove_levels(values, at) for at in range(2, count - 1)), key=lambda one: float(one @ one))
    spread = float(rest @ rest)
    if spread <= 1e-12 * float(values @ values):
        return 0.0
    # with two levels taken out of few samples, the estimate is too low by (3 + 9 · memory) / count: simulated
    # with 7 to 60 samples and a memory of 0 to 0.9
    seen = float(rest[1:] @ rest[:-1]) / spread
    return float(np.clip((seen + 3 / count) / max(1 - 9 / count, 0.25), 0.0, MOST_MEMORY))


def _remove_levels(values: Floats, at: int) -> Floats:
    """Return how far the values before and from `at` on are from their means."""
    before, after = values[:at], values[at:]
    return np.concatenate([before - before.sum() / len(before), after - after.sum() / len(after)])


def _correlate_orders(cause: Floats, shuffled: Floats, known: Bools, lag: int) -> Floats:
    """Correlate a cause with each row of effects as `correlate` does; -inf where that is undefined."""
    first, effects = cause[: max(0, len(cause) - lag)], shuffled[:, lag:]
    there = np.isfinite(first) & known[lag:]
    first, effects = first[there], effects[:, there]
    if len(first) < LEAST_PAIRS or np.ptp(first) == 0:
        return np.full(len(shuffled), -np.inf)
    first = first - first.mean()
    spread = (effects * effects).sum(axis=1) - effects.sum(axis=1) ** 2 / len(first)
    varied = np.ptp(effects, axis=1) > 0
    scale = np.sqrt(np.where(varied, np.maximum(spread, 0.0), np.inf) * float(first @ first))
    found = np.full(len(shuffled), -np.inf)
    np.divide(effects @ first, scale, out=found, where=varied & (scale > 0))
    return found


Readings = Callable[[float, float], Mapping[str, ServiceReading]]
"""Now, and how old a reading may be → service → its newest reading."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """One window: its number, by how much the backlog grew in it, and what services said."""

    number: int
    growth: float
    readings: Mapping[str, ServiceReading]


class ServiceWatch:
    """One sample a window; called with each window in turn.

    While a service explains the backlog, the samples from before it became slow are kept: else one that stays
    slow would look as if it had always been so.
    """

    def __init__(self, newest: Readings, test: ServiceTest | None = None) -> None:
        self._newest, self._test = newest, test or ServiceTest()
        self._latest = max(self._test.lags, default=0)
        # of the longest lag there must be pairs, too
        self._kept = BEFORE + max(SAMPLES, 2 * self._latest)
        self._samples: list[_Sample] = []
        self._taken, self._backlog = 0, math.nan

    def __call__(self, window: ApplicationWindow) -> float:
        """Return the correlation of the backlog's growth with the service that explains it; NaN if none."""
        found = self.look(window)
        return found.coefficient if found is not None else math.nan

    def look(self, window: ApplicationWindow) -> Correlation | None:
        """Find the service that explains the backlog, if one does."""
        before, self._backlog = self._backlog, backlog_of(window)
        # a reading from before the window says nothing about it
        readings = self._newest(window.end, window.end - window.start)
        self._samples.append(_Sample(self._taken, self._backlog - before, readings))
        self._taken += 1
        found = self._explain()
        if len(self._samples) > self._kept:
            del self._samples[BEFORE if found is not None else 0]
        return found

    def _explain(self) -> Correlation | None:
        """Find the service that the backlog follows most closely, unless by chance or it is fast again."""
        samples, test = self._line_up(), self._test
        growth = np.array([sample.growth for sample in samples], dtype=np.float64)
        # a service that fell silent before explains nothing of now
        names = sorted({name for sample in samples[-1 - self._latest :] for name in sample.readings})
        services = {name: _list_values(samples, name) for name in names}
        found = find_strongest(growth, services, test.lags)
        if found is None or found.coefficient < test.least_correlation:
            return None
        if not _is_slow(WORSE[found.aspect] * services[found.service][found.aspect], found.lag):
            return None
        causes = [WORSE[aspect] * values for one in services.values() for aspect, values in one.items()]
        # the mean of both is less by chance than either, and both must last to go together by chance
        memory = (estimate_memory(growth) + estimate_memory(services[found.service][found.aspect])) / 2
        # without memory the test is exact; with one it is only near, so it may refuse but never accept alone
        for kept in {0.0, memory}:
            chance = measure_chance(growth, causes, test.lags, found.coefficient, test.orders, kept)
            if chance > test.false_alarms:
                return None
        return found

    def _line_up(self) -> list[_Sample]:
        """Return the samples, with silence where some are missing between them: no lag reaches across it."""
        lined: list[_Sample] = []
        for sample in self._samples:
            if lined and sample.number > lined[-1].number + 1:
                lined += [_Sample(-1, math.nan, {})] * max(1, self._latest)
            lined.append(sample)
        return lined


def _list_values(samples: Sequence[_Sample], name: str) -> dict[str, Floats]:
    """Return aspect → what the service published of it, if anything; NaN where it said nothing."""
    silence = ServiceReading(name, math.nan)
    said = [sample.readings.get(name, silence) for sample in samples]
    values = {aspect: np.array([getattr(one, aspect) for one in said]) for aspect in ASPECTS}
    return {aspect: one for aspect, one in values.items() if np.isfinite(one).any()}


def _is_slow(worse: Floats, lag: int) -> bool:
    """Return whether one of the newest readings that count is above the mean of all that are kept."""
    newest = worse[: max(0, len(worse) - lag)][-LEAST_PAIRS:]
    newest = newest[np.isfinite(newest)]
    return bool(len(newest)) and bool(newest.max() > np.nanmean(worse))
