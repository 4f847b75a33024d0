"""The causal bound: the least that a controller could hold that knows all but the future.

It knows every capacity exactly, sees the offered rates of the last windows with their noise and lag, and may
decide anew in every policy interval, each decision taking effect a change's time later. Of a family of
predictors, with any margin, the one is taken in hindsight that holds least while it is short in no more than
the allowed share of the seconds. No loop can do much better; none knows beforehand which predictor is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats, Integers
from penstock.dataflow.propagation import ROUNDING_TOLERANCE, propagate_rates
from penstock.simulate.experiment import Experiment
from penstock.simulate.measures import Measures, batch_demand, least_instances, measure, true_demand
from penstock.simulate.ports import LEAST_FACTOR
from penstock.simulate.run import Run, follow_sizes
from penstock.simulate.virtual import BOUND, draw_disturbances, make_generator

NAME = "causal-bound"
ALLOWED = 0.001
"""The share of the seconds in which the bound may be short."""
WINDOWS = (1, 2, 4, 8, 16, 32)
"""Readings that a level or a line is taken from."""
SLOPES = (0.0, 0.5, 1.0)
"""How much of the trend is believed."""
KEPT = (1, 4, 12)
"""Decisions whose largest counts: how long the bound waits before it shrinks."""
SPARES = (0, 1)
"""Instances beyond what is predicted; only where instances fail."""
MARGINS = (-0.2, 4.0)
HALVINGS = 11
DAY = 86400
Number = TypeVar("Number", np.int64, np.float64)


@dataclass(frozen=True, eq=False)
class Bound:
    """The bound's run, its figures, and by which predictor it holds what it holds."""

    run: Run
    measures: Measures
    predictor: str


def find_bound(experiment: Experiment, seed: int = 0, allowed: float = ALLOWED) -> Bound:
    """Find the predictor and the margin that hold least while they are short in few enough seconds."""
    search = _BoundSearch(experiment, seed)
    best: tuple[float, float, str, Integers] | None = None
    for name, predicted in search.predictions():
        for spare in SPARES if search.fails else SPARES[:1]:
            found = search.fit_margin(predicted, spare, allowed)
            told = f"{name}{f', {spare} spare' if spare else ''}"
            rank = (max(found.short, allowed), found.cost)
            if best is None or rank < best[:2]:
                best = (*rank, f"{told}, margin {found.margin:.1%}", found.sizes)
    assert best is not None
    run = follow_sizes(experiment, search.spread(best[3]), NAME, seed)
    return Bound(run, measure(run, search.least), best[2])


@dataclass(frozen=True, eq=False)
class _Found:
    """The sizes that one margin gives, how short they are, and their cost."""

    short: float
    cost: float
    margin: float
    sizes: Integers


class _BoundSearch:
    """One experiment, its readings, and what sizes could take in each second."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        self.experiment, self.least = experiment, least_instances(experiment)
        self.interval = int(experiment.settings.manager.policy_interval)
        scaling = experiment.scenario.scaling
        self.warm_up = int(scaling.warm_up)
        # what is to be warm at a time is held from the warm-up before on
        self.ahead = int(experiment.scenario.metrics_lag) + int(scaling.pause) + self.warm_up
        """Seconds from the end of a window until a decision by it has its full effect."""
        self.units: list[int] = np.flatnonzero(experiment.scaled).tolist()
        self.fails = bool(experiment.scenario.failures)
        self._reached = [np.maximum.accumulate(table) for table in experiment.capacities]
        self.readings = self._read(seed)
        self._short, self._over = self._tabulate(seed)

    def _read(self, seed: int) -> Floats:
        """Return the rate of each source in each window, with noise."""
        numbers = [self.experiment.graph.index[name] for name in self.experiment.graph.sources]
        count = self.experiment.seconds // self.interval
        offered = self.experiment.offered[: count * self.interval, numbers]
        exact = offered.reshape(count, self.interval, len(numbers)).mean(axis=1)
        noise = self.experiment.scenario.noise
        factors = 1 + noise * make_generator(seed, BOUND).standard_normal(exact.shape)
        read: Floats = exact * np.maximum(LEAST_FACTOR, factors)
        return read

    def predictions(self) -> Iterator[tuple[str, Floats]]:
        """Yield each predictor's name and its rates, a row for each window by which it decides."""
        yesterday = self._look_back()
        for windows, slope in product(WINDOWS, SLOPES):
            if slope and windows < 4:
                continue
            line = self._extend(windows, slope)
            for kept in KEPT:
                name = f"{windows} windows, {slope:g} of their trend, largest of {kept}"
                held = _largest_of(line, kept)
                yield name, held
                if yesterday is not None:
                    yield f"{name}, or the day before", np.maximum(held, yesterday)

    def _extend(self, windows: int, slope: float) -> Floats:
        """Extend the line through the last readings to the middle of the time that a decision is for."""
        padded = np.concatenate([np.repeat(self.readings[:1], windows - 1, axis=0), self.readings])
        last = sliding_window_view(padded, windows, axis=0)
        mean: Floats = last.mean(axis=2)
        if not slope:
            return mean
        place = np.arange(windows) - (windows - 1) / 2
        rise = (last @ place) / (place @ place)
        steps = (self.ahead + self.interval / 2) / self.interval + windows / 2
        line: Floats = np.maximum(0.0, mean + slope * rise * steps)
        return line

    def _look_back(self) -> Floats | None:
        """Return what was read a day before the time that a decision is for, and around it."""
        back = (DAY - self.ahead) // self.interval - 1
        if len(self.readings) <= back:
            return None
        around = _largest_of(self.readings, 3)
        return np.concatenate([np.zeros((back, around.shape[1])), around[: len(around) - back]])

    def fit_margin(self, predicted: Floats, spare: int, allowed: float) -> _Found:
        """Find the least margin with which a predictor is short in few enough seconds."""
        low, high = MARGINS
        best = self._try(predicted, high, spare)
        if best.short > allowed:
            return best
        for _ in range(HALVINGS):
            margin = (low + high) / 2
            found = self._try(predicted, margin, spare)
            if found.short <= allowed:
                best, high = found, margin
            else:
                low = margin
        return best

    def _try(self, predicted: Floats, margin: float, spare: int) -> _Found:
        sizes = self._size(predicted * (1 + margin), spare)
        sizes = _largest_of(sizes[::-1], 1 + -(-self.warm_up // self.interval))[::-1]
        places = np.arange(len(self._short[self.units[0]]))
        held = [sizes[: len(places), unit] for unit in self.units]
        short = [self._short[unit][places, counts] for unit, counts in zip(self.units, held, strict=True)]
        cost = sum(
            float(self._over[unit][places, counts].sum()) * int(self.experiment.slots[unit])
            for unit, counts in zip(self.units, held, strict=True)
        )
        return _Found(float(np.max(short, axis=0).sum()) / self.experiment.seconds, cost, margin, sizes)

    def _tabulate(self, seed: int) -> tuple[dict[int, Floats], dict[int, Floats]]:
        """Count beforehand, for each unit, decision and size, the seconds short and the instances too many.

        A decision holds for one interval; an instance that has failed is needed once more.
        """
        experiment, first = self.experiment, self.interval + self.ahead
        demand = batch_demand(experiment) if experiment.shares_slots else true_demand(experiment)
        disturbed = draw_disturbances(experiment, seed)
        if disturbed is not None and not experiment.shares_slots:
            demand = demand / disturbed.shares
        short: dict[int, Floats] = {}
        over: dict[int, Floats] = {}
        starts = np.arange(0, max(1, experiment.seconds - first), self.interval)
        for unit in self.units:
            table = self._reached[unit]
            needed = np.searchsorted(table, demand[first:, unit] * (1 - ROUNDING_TOLERANCE))
            needed = np.minimum(needed, int(np.argmax(table)))
            if disturbed is not None:
                needed = needed + disturbed.failed[first:, unit]
            least = self.least[first:, unit]
            counts = np.arange(len(table))
            short[unit] = np.add.reduceat(needed[:, np.newaxis] > counts, starts, axis=0, dtype=np.float64)
            over[unit] = np.add.reduceat(
                np.maximum(counts - least[:, np.newaxis], 0), starts, axis=0, dtype=np.float64
            )
        return short, over

    def _size(self, rates: Floats, spare: int) -> Integers:
        """Return the least instances for these rates of the sources, a row for each decision."""
        experiment, graph = self.experiment, self.experiment.graph
        sizes = np.tile(self.least.max(axis=0), (len(rates), 1))
        if experiment.shares_slots:
            needed = [rates.sum(axis=1)]
        else:
            offered = {name: rates[:, number] for number, name in enumerate(graph.sources)}
            needed = propagate_rates(graph, experiment.selectivity.tolist(), offered)
        for unit in self.units:
            most = int(np.argmax(experiment.capacities[unit]))
            least = np.searchsorted(self._reached[unit], needed[unit] * (1 - ROUNDING_TOLERANCE))
            sizes[:, unit] = np.clip(least + spare, 1, max(most, 1))
        return sizes

    def spread(self, sizes: Integers) -> Integers:
        """Return what is held in each second: a decision holds until the next takes effect.

        Before the first one the oracle's largest size of that time is held.
        """
        seconds, first = self.experiment.seconds, self.interval + self.ahead
        held = np.empty((seconds, sizes.shape[1]), dtype=np.int64)
        held[:first] = self.least[:first].max(axis=0)
        held[first:] = np.repeat(sizes, self.interval, axis=0)[: max(0, seconds - first)]
        return held


def _largest_of(rates: NDArray[Number], count: int) -> NDArray[Number]:
    """Return at each place the largest of the last so many."""
    padded = np.concatenate([np.repeat(rates[:1], count - 1, axis=0), rates])
    largest: NDArray[Number] = sliding_window_view(padded, count, axis=0).max(axis=2)
    return largest
