"""DS2 on skewed words, simulated: the paper's section 4.2.3 varies the skew of the Dhalion benchmark."""

from __future__ import annotations

from collections.abc import Callable

import yaml  # type: ignore[import-untyped]

from penstock.evidence.findings import Chart, PartResult, agreed
from penstock.simulate.experiment import Experiment
from penstock.simulate.loading import SHIPPED, parse
from penstock.simulate.run import simulate
from penstock.simulate.virtual import READ

SHARES = (0.2, 0.5, 0.7)
COUNTS = 20
"""Instances of Count without skew."""
WITHOUT_SKEW = {"flatmap": 10, "count": COUNTS}
CONDITIONS = "simulated: of 20 instances of Count one gets this share beside its part of the rest"

Progress = Callable[[str], None]


def skew(_quick: bool, progress: Progress) -> PartResult:
    """DS2 stays at the size that fits without skew, which does not keep up, and does not oscillate."""
    findings, rates = [], []
    for share in SHARES:
        progress(f"{share:.0%} of the words are one word")
        run = simulate(skewed(share), "ds2")
        final = {name: run.actions[-1].planned[name] for name in WITHOUT_SKEW}
        read = float(run.seen[-60:, READ].mean() / run.experiment.offered[-60:].sum(axis=1).mean())
        rates.append(read)
        ours = f"{final['flatmap']} and {final['count']}, reads {read:.0%} of what is offered"
        agrees = final == WITHOUT_SKEW and read < 0.99
        claim = "the size that fits without skew, 10 and 20; it does not keep up"
        name = f"skew of {share:.0%}"
        findings.append(agreed(f"{name}: final size", claim, ours, agrees, conditions=CONDITIONS))
        steps = len(run.actions)
        said = f"after {steps} steps" if steps != 1 else "after one step"
        findings.append(
            agreed(f"{name}: converges", "after two steps", said, steps <= 2, conditions=CONDITIONS)
        )
    bars = [("ds2", [f"{share:.0%}" for share in SHARES], rates)]
    chart = Chart("throughput at the size that DS2 chooses", "skew", "share of the offered rate", bars, True)
    note = "The part hot-keys has what diagnosis says of a straggler, and what moving bins brings."
    return PartResult(findings, [chart], [note])


def skewed(share: float) -> Experiment:
    """The word count of Heron where one instance of Count gets this share beside its part of the rest."""
    path = SHIPPED / "dhalion-wordcount.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    # share + (1 - share) / n of all records, against the average 1 / n
    values["operators"]["count"]["skew"] = share * (COUNTS - 1)
    return parse(yaml.safe_dump(values), path)
