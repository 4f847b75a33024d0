"""What befalls a run from outside, second by second: slow services, neighbours, failures; seeded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.simulate.experiment import Experiment

ARRIVALS, FAILURES, NEIGHBOURS, SERVICES, SCATTER = 1, 2, 3, 4, 5
"""Streams of random numbers, so that more of one thing does not change another."""


def generator(seed: int, stream: int, number: int = 0) -> np.random.Generator:
    """Random numbers for one purpose; the same for every policy."""
    return np.random.default_rng([seed, stream, number])


def offered_records(experiment: Experiment, seed: int) -> Floats:
    """Records offered in each second: the profile itself, or drawn from it where arrivals are Poisson."""
    offered = experiment.offered
    for name, spec in experiment.scenario.sources.items():
        if spec.arrivals == "poisson":
            number = experiment.graph.index[name]
            if offered is experiment.offered:
                offered = offered.copy()
            drawn = generator(seed, ARRIVALS, number).poisson(experiment.offered[:, number])
            offered[:, number] = drawn
    return offered


@dataclass(frozen=True, eq=False)
class Disturbances:
    """For each second the share of its capacity of each operator, and the failed instances of each unit."""

    shares: Floats
    failed: Integers
    changes: Integers
    """The seconds at which something of it changes, in order, with the end of the run."""

    def steady_until(self, now: int) -> int:
        """The end of the span over which nothing changes."""
        return int(self.changes[np.searchsorted(self.changes, now, side="right")])


def disturbances(experiment: Experiment, seed: int) -> Disturbances | None:
    """All that the scenario names, or None if it names nothing."""
    scenario = experiment.scenario
    neighbours = scenario.interference.neighbours if scenario.interference else None
    if not (scenario.slowdowns or scenario.failures or neighbours):
        return None
    shares = experiment.capacity_shares()
    failed = np.zeros((experiment.seconds, len(experiment.units)), dtype=np.int64)
    if neighbours:
        random = generator(seed, NEIGHBOURS)
        for start, end in _spells(random, neighbours.every, neighbours.lasts, experiment.seconds):
            shares[start:end] *= neighbours.capacity
    for number, failure in enumerate(scenario.failures):
        column = failed[:, experiment.units.index(failure.operator)]
        if failure.start is not None:
            column[int(failure.start) : int(failure.start + failure.lasts)] += failure.instances
        if failure.every is not None:
            random = generator(seed, FAILURES, number)
            for start, end in _spells(random, failure.every, failure.lasts, experiment.seconds, fixed=True):
                column[start:end] += failure.instances
    return Disturbances(shares, failed, _changes(shares, failed))


def _changes(shares: Floats, failed: Integers) -> Integers:
    differs = (shares[1:] != shares[:-1]).any(axis=1) | (failed[1:] != failed[:-1]).any(axis=1)
    return np.append(np.flatnonzero(differs) + 1, len(shares))


def _spells(
    random: np.random.Generator, every: float, lasts: float, seconds: int, fixed: bool = False
) -> Iterator[tuple[int, int]]:
    """Spans [start, end) with exponential gaps, and exponential lengths unless they are fixed."""
    now = random.exponential(every)
    while now < seconds:
        end = now + (lasts if fixed else random.exponential(lasts))
        yield int(now), max(int(now) + 1, round(end))
        now = end + random.exponential(every)
