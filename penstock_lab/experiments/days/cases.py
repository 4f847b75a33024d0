"""The cases of the days: a load, a capacity, noise, the time a change takes, and whether instances die."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from penstock.simulate.experiment import Experiment
from penstock.simulate.loading import parse
from penstock.simulate.measures import least_instances
from penstock.simulate.scenario import Failures
from penstock_lab.experiments.days.profiles import MADE, list_recorded, make_day

LINEAR, SUBLINEAR, BATCHES = "linear", "sub-linear", "micro-batch"
CAPACITIES = (LINEAR, SUBLINEAR, BATCHES)
PEAK_SIZE = 30
"""Instances or executors that the oracle holds at the peak of every day."""
NOISE, DELAY = 0.05, 45
"""Of the cases that targets are set for."""
NOISES, DELAYS = (0.0, 0.05, 0.1), (15, 45, 90)
SEED = 2028
"""Of the days that are shown; what was tuned was tuned under seeds from 100 to 110."""
RUN_SEED = 7
DIES_EVERY, DEAD_FOR = 45 * 60.0, 300.0
_COMMON = """
duration: 60s
scaling: {kind: live, pause: 45s, warm_up: 10s, cold: 0.5}
metrics_lag: 5s
"""
_TEXTS = {
    LINEAR: """
sources: {events: {rate: "constant:1"}}
operators: {main: {inputs: [events], service_time: 1ms}}
settings: {latency_target: 10s}
""",
    SUBLINEAR: """
sources: {events: {rate: "constant:1"}}
operators: {main: {inputs: [events], service_time: 1ms, curve: {kind: usl, alpha: 0.01}}}
settings: {latency_target: 10s}
""",
    BATCHES: """
batches: {trigger: 10s, serial: 0.8s, executors: 1, cores: 2}
sources: {events: {rate: "constant:1", tasks: 64, service_time: 0.02ms}}
operators:
  count:
    inputs: [events]
    service_time: 1ms
    tasks: 200
    task_time: 15ms
    selectivity: 0.1
    distribution: {kind: lognormal, cv: 0.3}
    curve: {kind: usl, alpha: 0.001}
settings: {latency_target: 30s}
""",
}


@dataclass(frozen=True, slots=True)
class DayCase:
    """One day under one set of conditions."""

    day: str
    capacity: str
    noise: float = NOISE
    delay: int = DELAY
    dies: bool = False
    seed: int = SEED

    @property
    def name(self) -> str:
        """How rows and progress call it."""
        dying = ", an instance dies every 45 min" if self.dies else ""
        return f"{self.day}, {self.capacity}, noise {self.noise:.0%}, {self.delay} s{dying}"


def list_cases(quick: bool) -> tuple[DayCase, ...]:
    """List the cases: those that targets are set for, and one condition at a time changed."""
    days = (*MADE, *list_recorded())
    if quick:
        usual = [DayCase(day, capacity) for day in ("ramp", "flash", "cars") for capacity in CAPACITIES]
        return (
            *usual,
            DayCase("nights", LINEAR),
            DayCase("ramp", LINEAR, dies=True),
            DayCase("cars", LINEAR, 0.1),
        )
    cases = []
    for day in days:
        for capacity in CAPACITIES:
            cases.append(DayCase(day, capacity))
            cases += [DayCase(day, capacity, noise=noise) for noise in NOISES if noise != NOISE]
            cases += [DayCase(day, capacity, delay=delay) for delay in DELAYS if delay != DELAY]
            cases.append(DayCase(day, capacity, dies=True))
    return tuple(cases)


@lru_cache(maxsize=8)
def _read_capacity(capacity: str) -> Experiment:
    """Read a scenario of each kind once: cases differ in the load and in conditions only."""
    return parse(_COMMON + _TEXTS[capacity], Path(f"{capacity}.yaml"))


def make_experiment(case: DayCase) -> Experiment:
    """Make the experiment of a case; the oracle holds as much at the peak of every day."""
    base = _read_capacity(case.capacity)
    unit = int(np.flatnonzero(base.scaled)[-1])
    peak = float(base.capacities[unit][PEAK_SIZE])
    load = make_day(case.day, case.seed) * peak * (1 - 1e-6)
    offered = np.zeros((len(load), base.offered.shape[1]))
    offered[:, base.graph.index["events"]] = load
    died = Failures(operator=base.units[unit], every=DIES_EVERY, lasts=DEAD_FOR)
    scenario = base.scenario.model_copy(
        update={
            "noise": case.noise,
            "scaling": base.scenario.scaling.model_copy(update={"pause": float(case.delay)}),
            "failures": (died,) if case.dies else (),
        }
    )
    experiment = replace(base, name=case.day, scenario=scenario, offered=offered)
    return replace(experiment, initial=least_instances(experiment)[0])
