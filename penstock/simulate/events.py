"""A dataflow of single records: each arrives, waits, is served and leaves at a time of its own.

Exact for first come, first served and queues without bounds; a source is read without delay.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.simulate.experiment import Experiment
from penstock.simulate.scenario import OperatorSpec, SourceSpec
from penstock.simulate.virtual import (
    ARRIVALS,
    BACKLOG,
    LATENCY,
    QUEUED,
    READ,
    SERVICES,
    UNLIMITED_SERVICE,
    Simulated,
    make_generator,
)

PERCENTILES = (50.0, 95.0, 99.0)


class _Station:
    """One operator: the records before it in the order of their arrival, and its instances.

    Chance is drawn in the order in which records are served, so that it does not matter at which moments
    the simulation is looked at.
    """

    def __init__(self, experiment: Experiment, number: int, seed: int) -> None:
        self.spec = experiment.specs[number]
        self.targets = [i for i, feeds in enumerate(experiment.graph.upstream) if number in feeds]
        self.arrivals, self.births, self.factors = np.zeros(0), np.zeros(0), np.zeros(0)
        self.free = np.zeros(0)
        self.latencies: Integers = np.zeros(BINS, dtype=np.int64)
        self.ages, self.left = np.zeros(0), np.zeros(0)
        self._services = make_generator(seed, SERVICES, 2 * number)
        self._copies = make_generator(seed, SERVICES, 2 * number + 1)
        self.resize(int(experiment.initial[number]), 0.0)

    def resize(self, count: int, now: float) -> None:
        """Let idle instances go first; new ones are free at once."""
        busiest = np.sort(self.free)[::-1][:count]
        self.free = np.concatenate([busiest, np.full(max(0, count - len(busiest)), now)])
        self.forget_work()

    def forget_work(self) -> None:
        """Count records done and seconds worked from here on."""
        self.done, self.work = np.zeros(len(self.free)), np.zeros(len(self.free))

    def join(self, times: Floats, births: Floats) -> None:
        """Take records in; some may come before others that are already on their way."""
        arrivals = np.concatenate([self.arrivals, times])
        order = np.argsort(arrivals, kind="stable")
        self.arrivals, self.births = arrivals[order], np.concatenate([self.births, births])[order]

    def serve(self, mean: float, until: float, working: int) -> tuple[Floats, Floats, Integers]:
        """Return when the records served leave, in that order, when they came into being, what each sends."""
        assert isinstance(self.spec, OperatorSpec)
        self.free[working:] = np.maximum(self.free[working:], until)
        missing = len(self.arrivals) - len(self.factors)
        drawn = self.spec.distribution.draw_factors(self._services, max(0, missing))
        self.factors = np.concatenate([self.factors, drawn])
        leaving, births = self.arrivals, self.births
        served = serve(leaving, self.factors, mean, self.free, until, self.done, self.work)
        self.arrivals, self.births, self.factors = leaving[served:], births[served:], self.factors[served:]
        order = np.argsort(leaving[:served], kind="stable")
        times = leaving[:served][order] + self.spec.coordination * len(self.free)
        return times, births[:served][order], self._draw_sent(served)[order]

    def _draw_sent(self, count: int) -> Integers:
        """Draw how many records each one sends: the selectivity, a fraction of one by chance."""
        ratio = self.spec.selectivity if isinstance(self.spec, OperatorSpec) else 1.0
        whole = np.full(count, int(ratio), dtype=np.int64)
        return whole if ratio == int(ratio) else whole + (self._copies.random(count) < ratio % 1.0)


class VirtualEvents(Simulated):
    """Advances a dataflow record by record."""

    def __init__(self, experiment: Experiment, seed: int = 0) -> None:
        super().__init__(experiment, seed)
        size = len(experiment.names)
        self.stations = [_Station(experiment, number, seed) for number in range(size)]
        self._coming = {
            number: _arrival_times(
                self.offered[:, number], make_generator(seed, ARRIVALS, size + number), spec
            )
            for number, spec in enumerate(experiment.specs)
            if isinstance(spec, SourceSpec)
        }
        self._read = dict.fromkeys(self._coming, 0)
        self._sinks = [station for station in self.stations if not station.targets]
        for sink in self._sinks:
            sink.ages, sink.left = np.zeros(experiment.seconds), np.zeros(experiment.seconds)
        self._last_latency = 0.0

    def take_over(self) -> None:
        """Let the change under way take effect."""
        super().take_over()
        for station, count in zip(self.stations, self.instances.tolist(), strict=True):
            if count != len(station.free):
                station.resize(count, float(self.now))

    def flow_on(self, until: int, stopped: bool) -> None:
        """Serve all that begins before then, operator by operator, sources first."""
        mean, working = self._mean_service(), self.working.tolist()
        for number, station in enumerate(self.stations):
            if number in self._coming:
                times = births = self._read_source(number, until, stopped)
                sent = np.ones(len(times), dtype=np.int64)
            else:
                times, births, sent = station.serve(
                    float(mean[number]), float(until), 0 if stopped else working[number]
                )
                if not station.targets:
                    self._note(station, times, times - births)
            times, births = np.repeat(times, sent), np.repeat(births, sent)
            for target in station.targets:
                self.stations[target].join(times, births)
        self._look(until, stopped)

    def instance_work(self) -> tuple[Integers, Floats, Floats]:
        """Return since the last call the operator of each instance, its records and the seconds it worked."""
        counts = [len(station.free) for station in self.stations]
        operator = np.repeat(np.arange(len(counts)), counts)
        records = np.concatenate([station.done for station in self.stations])
        work = np.concatenate([station.work for station in self.stations])
        for station in self.stations:
            station.forget_work()
        return operator, records, work

    def scatter(self) -> None:
        """Return nothing: records show by themselves how they scatter."""

    def latency(self, start: int, end: int) -> float | None:
        """Return the mean of what left, at the slowest sink; None while nothing leaves."""
        sums = [(sink.ages[start:end].sum(), sink.left[start:end].sum()) for sink in self._sinks]
        return max((float(ages / left) for ages, left in sums if left), default=None)

    def record_latencies(self) -> tuple[float, ...]:
        """Return p50, p95 and p99 of single records, each at the sink where it is largest."""
        found = [percentiles(station.latencies, PERCENTILES) for station in self.stations]
        return tuple(max(column) for column in zip(*found, strict=True))

    def waiting(self, number: int, moment: int | None = None) -> float:
        """Return records that wait before an operator, or before a source while all stands still."""
        moment = self.now if moment is None else moment
        if number in self._coming:
            return float(np.searchsorted(self._coming[number], moment, side="left") - self._read[number])
        return float(np.searchsorted(self.stations[number].arrivals, moment, side="left"))

    def _mean_service(self) -> Floats:
        """Return seconds a record of one instance, from the capacity of those that work."""
        experiment, working = self.experiment, self.working
        capacity = experiment.capacity_of(working) * self.shares * experiment.slow_down(self.instances)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.isfinite(capacity) & (capacity > 0), working / capacity, 0.0)

    def _read_source(self, number: int, until: int, stopped: bool) -> Floats:
        """Let in what came while all stood still, as soon as it may be read."""
        if stopped:
            return np.zeros(0)
        coming, first, station = self._coming[number], self._read[number], self.stations[number]
        last = self._read[number] = int(np.searchsorted(coming, until, side="left"))
        station.done += (last - first) / len(station.done)
        station.work += (last - first) / len(station.done) * UNLIMITED_SERVICE
        seconds = np.maximum(coming[first:last].astype(np.int64), self.now)
        self.seen[self.now : until, READ] += np.bincount(seconds - self.now, minlength=until - self.now)
        return coming[first:last]

    def _note(self, station: _Station, times: Floats, ages: Floats) -> None:
        """Count the latencies of what leaves a sink, by records and by seconds."""
        count_latencies(ages, station.latencies)
        kept = times < self.experiment.seconds
        if kept.any():
            first = int(times[0])
            seconds = times[kept].astype(np.int64) - first
            sums, counts = np.bincount(seconds, weights=ages[kept]), np.bincount(seconds)
            station.ages[first : first + len(sums)] += sums
            station.left[first : first + len(sums)] += counts

    def _look(self, until: int, stopped: bool) -> None:
        """Count what waits in the end; the latency of a second is of what left, else the last one seen."""
        with np.errstate(divide="ignore", invalid="ignore"):
            means = [sink.ages[self.now : until] / sink.left[self.now : until] for sink in self._sinks]
        slowest = np.fmax.reduce(means)
        for second, latency in enumerate(slowest.tolist(), self.now):
            if not math.isnan(latency):
                self._last_latency = latency
            elif stopped:
                self._last_latency += 1.0
            self.seen[second, LATENCY] = self._last_latency
        for number in range(len(self.stations)):
            column = BACKLOG if number in self._coming else QUEUED
            self.seen[self.now : until, column] += self.waiting(number, until)


def _arrival_times(offered: Floats, random: np.random.Generator, spec: SourceSpec) -> Floats:
    """Return when each record comes: anywhere in its second, or evenly as the profile says."""
    if spec.arrivals == "poisson":
        counts = offered.astype(np.int64)
        return np.sort(np.repeat(np.arange(len(counts)), counts) + random.random(int(counts.sum())))
    sums = np.concatenate([[0.0], np.cumsum(offered)])
    return np.interp(np.arange(0.5, np.floor(sums[-1])), sums, np.arange(len(sums)))


@numba.njit(cache=True)
def serve(
    arrivals: Floats, factors: Floats, service: float, free: Floats, until: float, done: Floats, work: Floats
) -> int:
    """Give each record, in order, to the instance that is free first; stop at one that begins later.

    `factors` are service times in multiples of the mean; `free` says when each instance is free and is
    brought up to date, as are the records `done` and the seconds of `work` of each. What begins before
    `until` is served to its end; `arrivals` become the times at which records leave. Returns how many.
    """
    for number in range(len(arrivals)):
        first = 0
        for instance in range(1, len(free)):
            if free[instance] < free[first]:
                first = instance
        start = max(arrivals[number], free[first])
        if start >= until:
            return number
        seconds = factors[number] * service
        free[first] = start + seconds
        done[first] += 1.0
        work[first] += seconds
        arrivals[number] = free[first]
    return len(arrivals)


BINS = 2400
LEAST_SECONDS = 1e-6
PER_DECADE = 200
"""Bins grow by 1.16 %, from a microsecond to eleven days: a percentile is that exact."""


@numba.njit(cache=True)
def count_latencies(ages: Floats, counts: Integers) -> None:
    """Add latencies to a histogram whose bins are even in the logarithm."""
    for age in ages:
        place = int(math.log10(max(age, LEAST_SECONDS) / LEAST_SECONDS) * PER_DECADE)
        counts[min(place, len(counts) - 1)] += 1


def percentiles(counts: Integers, wanted: tuple[float, ...]) -> tuple[float, ...]:
    """Return the latencies that so many per cent of the records did not exceed; zero if there are none."""
    total = int(counts.sum())
    if total == 0:
        return (0.0,) * len(wanted)
    reached = np.cumsum(counts)
    places = np.searchsorted(reached, np.array(wanted) / 100 * total, side="left")
    # the middle of the bin, on its logarithmic scale
    return tuple((LEAST_SECONDS * 10 ** ((places + 0.5) / PER_DECADE)).tolist())
