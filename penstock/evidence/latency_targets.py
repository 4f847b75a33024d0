"""AuTraScale's tables II and III, simulated: what it holds and how late it is, beside DRS."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from penstock.evidence.findings import Finding, PartResult, Verdict, agreed, judged
from penstock.evidence.simulated import simulated
from penstock.simulate.comparison import compare
from penstock.simulate.loading import load
from penstock.simulate.run import Run
from penstock.simulate.virtual import LATENCY

Progress = Callable[[str], None]

FITTED_SIZE = "capacities are fitted, and a smaller size may meet the target here than in the paper"

AUTRASCALE: Mapping[str, int] = {
    "autrascale-wordcount-up": 65,
    "autrascale-wordcount-down": 48,
    "autrascale-yahoo-up": 48,
    "autrascale-yahoo-down": 62,
}
"""Scenario → instances of AuTraScale in tables II and III."""

DRS: Mapping[str, tuple[int, bool]] = {
    "autrascale-wordcount-up": (19, False),
    "autrascale-wordcount-down": (153, False),
    "autrascale-yahoo-up": (179, True),
    "autrascale-yahoo-down": (179, True),
}
"""Scenario → instances of DRS with true rates in tables II and III, and whether they meet the targets."""


def latency_targets(quick: bool, progress: Progress) -> PartResult:
    """Instances held in the end, beside DRS, with the latency target met or not."""
    findings: list[Finding] = []
    for name in list(AUTRASCALE)[:1] if quick else list(AUTRASCALE):
        target = load(name).settings.latency_target or math.inf
        (ours, _), (drs, _) = compare(load(name), ["autrascale", "drs"], 0, progress).runs
        held, other, late = _held(ours), _held(drs), _late(ours)
        said = f"{late:.3f} s of {target:.3f} s"
        findings += [
            instances_held(name, held, other),
            against_drs(name, held, other, _late(drs) <= target),
            agreed(f"{name}: latency", "meets its target", said, late <= target),
        ]
    return PartResult([simulated(one) for one in findings])


def instances_held(name: str, held: int, other: int) -> Finding:
    """A smaller size than the published one is no success where the capacities are fitted."""
    result, baseline = f"{name}: instances in the end", f"drs: {other}"
    found = judged(result, AUTRASCALE[name], held, baseline=baseline, why=FITTED_SIZE)
    return replace(found, verdict=Verdict.NOT_COMPARABLE) if found.verdict is Verdict.BETTER else found


def against_drs(name: str, held: int, other: int, other_meets: bool) -> Finding:
    """Fewer instances than DRS, or more where those of DRS miss the target."""
    theirs, met = DRS[name]
    claim = f"{AUTRASCALE[name]} against {theirs}" + ("" if met else ", which miss the targets")
    ours = f"{held} against {other}" + ("" if other_meets else ", which miss the target")
    agrees, why = held <= other or not other_meets, "no more than DRS, or DRS misses the target"
    return agreed(f"{name}: instances against DRS", claim, ours, agrees, why=why)


def _held(run: Run) -> int:
    return int(run.held[-1, run.experiment.scaled].sum())


def _late(run: Run) -> float:
    """The median latency of the last tenth of the run."""
    return float(np.median(run.seen[-len(run.seen) // 10 :, LATENCY]))
