"""AuTraScale's figure 8, simulated: what was learned at one rate serves at the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from penstock.evidence.findings import Chart, Finding, PartResult, agreed
from penstock.simulate.comparison import Comparison, compare
from penstock.simulate.loading import load
from penstock.simulate.run import Run
from penstock.simulate.virtual import LATENCY

Progress = Callable[[str], None]

SCENARIOS = ("autrascale-q5", "autrascale-q11")
CHANGE_SECONDS = 6 * 3600
"""When the rate rises; half of the run."""
POLICIES = ("autrascale", "drs")
CONDITIONS = "simulated, virtual time, seed 0; capacities fitted to the published least sizes"


def other_rates(quick: bool, progress: Progress) -> PartResult:
    """Sizes tried at either rate, and whether the latency target holds at the second."""
    findings: list[Finding] = []
    charts: list[Chart] = []
    for name in SCENARIOS[1:] if quick else SCENARIOS:
        comparison = compare(load(name), list(POLICIES), 0, progress)
        (ours, _), (drs, _) = comparison.runs
        findings += rate_findings(name, ours, drs)
        charts += _charts(name, comparison)
    note = "Figure 8 has no numbers: what is compared is what the paper says of it."
    return PartResult(findings, charts, [note])


def rate_findings(name: str, ours: Run, drs: Run) -> list[Finding]:
    """Fewer sizes are tried where a model is there already, and the target is met."""
    tried = [_tried(ours, before) for before in (True, False)]
    target = ours.experiment.settings.latency_target or float("inf")
    late, other = _late(ours), _late(drs)
    held = int(ours.held[-1, ours.experiment.scaled].sum())
    rival = int(drs.held[-1, drs.experiment.scaled].sum())
    said = f"{tried[1]} sizes tried at the second rate, {tried[0]} at the first"
    claim = "a model of another rate spares samples"
    return [
        agreed(f"{name}: sizes tried", claim, said, tried[1] < tried[0], conditions=CONDITIONS),
        agreed(
            f"{name}: latency at the second rate",
            "meets its target",
            f"{late:.3f} s of {target:.3f} s, with {held} instances",
            late <= target,
            baseline=f"drs: {other:.3f} s, with {rival} instances",
            conditions=CONDITIONS,
        ),
    ]


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
