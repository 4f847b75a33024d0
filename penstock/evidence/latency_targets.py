"""AuTraScale's tables II and III, simulated: what it holds and how late it is, beside DRS."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from penstock.evidence.findings import Finding, PartResult, Verdict, agreed, judged
from penstock.evidence.simulated import simulated
from penstock.simulate.comparison import compare
from penstock.simulate.loading import load
from penstock.simulate.run import Run
from penstock.simulate.virtual import LATENCY

Progress = Callable[[str], None]

FITTED_SIZE = "capacities are fitted, and a smaller size may meet the target here than in the paper"


@dataclass(frozen=True, slots=True)
class Scaled:
    """What tables II and III have of one experiment; of DRS the one with true rates."""

    title: str
    instances: int
    latency_seconds: float
    drs_instances: int
    drs_meets: bool
    """Whether DRS meets the targets of latency and throughput."""


PUBLISHED: Mapping[str, Scaled] = {
    "autrascale-wordcount-up": Scaled("word count, from too few", 65, 0.172, 19, drs_meets=False),
    "autrascale-wordcount-down": Scaled("word count, from too many", 48, 0.160, 153, drs_meets=False),
    "autrascale-yahoo-up": Scaled("Yahoo, from too few", 48, 0.2237, 179, drs_meets=True),
    "autrascale-yahoo-down": Scaled("Yahoo, from too many", 62, 0.246, 179, drs_meets=True),
}
"""Scenario → what was published of it."""


def latency_targets(quick: bool, progress: Progress) -> PartResult:
    """Instances held in the end, beside DRS, with the latency target met or not."""
    findings: list[Finding] = []
    for name, published in list(PUBLISHED.items())[: 1 if quick else None]:
        target = load(name).settings.latency_target or math.inf
        (ours, _), (drs, _) = compare(load(name), ["autrascale", "drs"], 0, progress).runs
        held, other, late = _held(ours), _held(drs), _late(ours)
        claim, said = (f"{seconds:.3f} s of {target:.3f} s" for seconds in (published.latency_seconds, late))
        findings += [
            instances_held(published, held, other),
            against_drs(published, held, other, _late(drs) <= target),
            agreed(f"{published.title}: latency meets its target", claim, said, late <= target),
        ]
    return PartResult([simulated(one) for one in findings])


def instances_held(published: Scaled, held: int, other: int) -> Finding:
    """A smaller size than the published one is no success where the capacities are fitted."""
    result, baseline = f"{published.title}: instances in the end", f"drs: {other}"
    found = judged(result, published.instances, held, baseline=baseline)
    if found.verdict is Verdict.BETTER:
        return replace(found, verdict=Verdict.NOT_COMPARABLE, why=FITTED_SIZE)
    return found


def against_drs(published: Scaled, held: int, other: int, other_meets: bool) -> Finding:
    """Fewer instances than DRS, or more where those of DRS miss the target."""
    missed = "" if published.drs_meets else ", which miss the targets"
    claim = f"{published.instances} against {published.drs_instances}{missed}"
    ours = f"{held} against {other}" + ("" if other_meets else ", which miss the target")
    agrees, why = held <= other or not other_meets, "no more than DRS, or DRS misses the target"
    return agreed(f"{published.title}: instances against DRS", claim, ours, agrees, why=why)


def _held(run: Run) -> int:
    return int(run.held[-1, run.experiment.scaled].sum())


def _late(run: Run) -> float:
    """The median latency of the last tenth of the run."""
    return float(np.median(run.seen[-len(run.seen) // 10 :, LATENCY]))
