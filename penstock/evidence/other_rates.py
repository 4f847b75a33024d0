"""AuTraScale's figure 8, simulated: what was learned at one rate serves at the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from penstock.evidence.findings import Chart, Finding, PartResult, agreed, incomparable, judged
from penstock.simulate.comparison import Comparison, compare
from penstock.simulate.loading import load
from penstock.simulate.run import Run
from penstock.simulate.virtual import LATENCY

Progress = Callable[[str], None]

CHANGE_SECONDS = 6 * 3600
"""When the rate rises; half of the run."""
POLICIES = ("autrascale", "ds2")
CONDITIONS = "simulated, virtual time, seed 0; capacities fitted to the published least sizes"


SCENARIOS: Mapping[str, int] = {"autrascale-q5": -5, "autrascale-q11": 0}
"""Scenario → instances more than DS2's that AuTraScale holds at the second rate; of query 11: similar."""


def other_rates(quick: bool, progress: Progress) -> PartResult:
    """Sizes tried at either rate, whether the latency target holds at the second, and DS2 beside it."""
    findings: list[Finding] = []
    charts: list[Chart] = []
    for name in list(SCENARIOS)[1:] if quick else SCENARIOS:
        comparison = compare(load(name), list(POLICIES), 0, progress)
        (ours, _), (ds2, _) = comparison.runs
        findings += [*rate_findings(name, ours), beside_ds2(name, ours, ds2)]
        charts += _charts(name, comparison)
    return PartResult(findings, charts)


def rate_findings(name: str, ours: Run) -> list[Finding]:
    """Fewer sizes are tried where a model is there already, and the target is met."""
    tried = [_tried(ours, before) for before in (True, False)]
    said = f"{tried[1]} sizes tried at the second rate, {tried[0]} at the first"
    claim = "a model of another rate spares samples"
    late, target = _late(ours), _target(ours)
    met = f"{late:.3f} s of {target:.3f} s, with {_instances(ours)} instances"
    return [
        agreed(f"{name}: sizes tried", claim, said, tried[1] < tried[0], conditions=CONDITIONS),
        agreed(
            f"{name}: latency at the second rate",
            "meets its target",
            met,
            late <= target,
            conditions=CONDITIONS,
        ),
    ]


def beside_ds2(name: str, ours: Run, ds2: Run) -> Finding:
    """Instances less those of DS2; not to be compared where DS2's latency is over the target."""
    more, late, target = _instances(ours) - _instances(ds2), _late(ds2), _target(ds2)
    result = f"{name}: instances more than DS2's"
    baseline = f"DS2: {_instances(ds2)} instances, {late:.3f} s"
    if late <= target:
        return judged(result, SCENARIOS[name], more, baseline=baseline, conditions=CONDITIONS)
    why = f"DS2, which knows no latency, holds the least that keeps up: {late:.3f} s of {target:.3f} s"
    return incomparable(result, SCENARIOS[name], more, why, baseline=baseline, conditions=CONDITIONS)


def _target(run: Run) -> float:
    return run.experiment.settings.latency_target or float("inf")


def _instances(run: Run) -> int:
    """Of all operators, in the middle of what was held in the last tenth of the run."""
    held = run.held[-len(run.held) // 10 :, run.experiment.scaled].sum(axis=1)
    return int(np.median(held))


def _tried(run: Run, before: bool) -> int:
    return sum((action.intended_at < CHANGE_SECONDS) == before for action in run.actions)


def _late(run: Run) -> float:
    """The median latency of the last tenth of the run."""
    return float(np.median(run.seen[-len(run.seen) // 10 :, LATENCY]))


def _charts(name: str, comparison: Comparison) -> list[Chart]:
    every = range(0, comparison.experiment.seconds, max(1, comparison.experiment.seconds // 400))
    hours = [round(second / 3600, 3) for second in every]
    return [
        Chart(
            f"{name}: instances (figure 8)", "hours", "instances", _held(comparison, every, hours), steps=True
        ),
        Chart(f"{name}: latency (figure 8)", "hours", "seconds", _latency(comparison, every, hours)),
    ]


def _held(
    comparison: Comparison, every: Sequence[int], hours: Sequence[float]
) -> list[tuple[str, Sequence[float], list[float | None]]]:
    return [
        (run.policy, hours, [float(count) for count in run.held[list(every)].sum(axis=1)])
        for run, _ in comparison.runs
    ]


def _latency(
    comparison: Comparison, every: Sequence[int], hours: Sequence[float]
) -> list[tuple[str, Sequence[float], list[float | None]]]:
    return [
        (run.policy, hours, [round(float(value), 4) for value in run.seen[list(every), LATENCY]])
        for run, _ in comparison.runs
    ]
