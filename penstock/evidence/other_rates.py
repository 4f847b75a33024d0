"""AuTraScale's figure 8, simulated: what was learned at one rate serves at the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.evidence.findings import Chart, Finding, PartResult, agreed, incomparable, judged
from penstock.evidence.simulated import floats, sampled
from penstock.simulate.comparison import Comparison, compare
from penstock.simulate.loading import load
from penstock.simulate.run import Run
from penstock.simulate.virtual import LATENCY

Progress = Callable[[str], None]

CHANGE_SECONDS = 6 * 3600
"""When the rate rises; half of the run."""
POLICIES = ("autrascale", "ds2")
CONDITIONS = "simulated, virtual time, seed 0; capacities fitted to the published least sizes"


@dataclass(frozen=True, slots=True)
class Moved:
    """What figure 8 has of one query: how many instances and iterations more than DS2 AuTraScale has."""

    title: str
    more_instances: int
    more_iterations: int


SCENARIOS: Mapping[str, Moved] = {
    "autrascale-q5": Moved("query 5", -5, 2),
    "autrascale-q11": Moved("query 11", 0, 0),
}
"""Scenario → what was published of it; instances of query 11 are called similar."""
OFFLINE = "the paper computes DS2's sizes offline; here it goes on with every small change of what is offered"


def other_rates(quick: bool, progress: Progress) -> PartResult:
    """Sizes tried at either rate, whether the latency target holds at the second, and DS2 beside it."""
    findings: list[Finding] = []
    charts: list[Chart] = []
    found: dict[str, Comparison] = {}
    for name in list(SCENARIOS)[1:] if quick else SCENARIOS:
        published = SCENARIOS[name]
        found[published.title] = comparison = compare(load(name), list(POLICIES), 0, progress)
        (ours, _), (ds2, _) = comparison.runs
        findings += [*rate_findings(published, ours), beside_ds2(published, ours, ds2)]
        findings.append(iterations(published, ours, ds2))
        charts += [_over_time(published.title, comparison), _distribution(published.title, comparison)]
    return PartResult(findings, [_in_the_end(found), *charts])


def rate_findings(published: Moved, ours: Run) -> list[Finding]:
    """Fewer sizes are tried where a model is there already, and the target is met."""
    tried = [_tried(ours, before) for before in (True, False)]
    said = f"{tried[1]} sizes tried at the second rate, {tried[0]} at the first"
    claim = "a model of another rate spares samples"
    late, target = _late(ours), _target(ours)
    met = f"{late:.3f} s of {target:.3f} s, with {_instances(ours)} instances"
    result = f"{published.title}: latency at the second rate"
    return [
        agreed(f"{published.title}: sizes tried", claim, said, tried[1] < tried[0], conditions=CONDITIONS),
        agreed(result, "meets its target", met, late <= target, conditions=CONDITIONS),
    ]


def beside_ds2(published: Moved, ours: Run, ds2: Run) -> Finding:
    """Instances less those of DS2; not to be compared where DS2's latency is over the target."""
    more, late, target = _instances(ours) - _instances(ds2), _late(ds2), _target(ds2)
    result = f"{published.title}: instances more than DS2's"
    beside = f"DS2: {_instances(ds2)} instances, {late:.3f} s"
    if late <= target:
        return judged(result, published.more_instances, more, baseline=beside, conditions=CONDITIONS)
    why = f"DS2, which knows no latency, holds the least that keeps up: {late:.3f} s of {target:.3f} s"
    return incomparable(result, published.more_instances, more, why, baseline=beside, conditions=CONDITIONS)


def iterations(published: Moved, ours: Run, ds2: Run) -> Finding:
    """Sizes tried at the second rate beside those of DS2."""
    more = _tried(ours, before=False) - _tried(ds2, before=False)
    result, beside = f"{published.title}: iterations more than DS2's", f"DS2: {_tried(ds2, before=False)}"
    shown = {"baseline": beside, "conditions": CONDITIONS}
    return incomparable(result, published.more_iterations, more, OFFLINE, **shown)


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
    return float(np.median(_last_tenth(run)))


def _last_tenth(run: Run) -> Floats:
    latencies: Floats = run.seen[-len(run.seen) // 10 :, LATENCY]
    return latencies


def _in_the_end(found: Mapping[str, Comparison]) -> Chart:
    """Instances of both at the second rate, query by query (figure 8a)."""
    by_query = [[_instances(run) for run, _ in comparison.runs] for comparison in found.values()]
    bars = [
        (policy, list(found), [float(counts[place]) for counts in by_query])
        for place, policy in enumerate(POLICIES)
    ]
    return Chart("instances in the end (figure 8a)", "", "instances", bars, bars=True)


def _over_time(title: str, comparison: Comparison) -> Chart:
    every = sampled(comparison)
    hours = [round(second / 3600, 3) for second in every]
    series = [
        (run.policy, hours, floats(run.held[every][:, run.experiment.scaled].sum(axis=1)))
        for run, _ in comparison.runs
    ]
    return Chart(f"{title}: instances over time", "hours", "instances", series, steps=True)


def _distribution(title: str, comparison: Comparison) -> Chart:
    """How late the seconds of the last tenth of the run are (figure 8b)."""
    shares = np.linspace(0, 1, 101)
    series = [
        (run.policy, floats(np.quantile(_last_tenth(run), shares)), floats(shares))
        for run, _ in comparison.runs
    ]
    y = "share of seconds that are no later"
    return Chart(f"{title}: latency in the end (figure 8b)", "latency, s", y, series)
