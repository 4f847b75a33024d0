"""DS2's table 4 on a real cluster, as far as its slots reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.evidence.findings import Chart, Finding, PartResult, agreed, incomparable, unmeasured

if TYPE_CHECKING:
    from penstock.bench.convergence import Convergence

Progress = Callable[[str], None]

CONDITIONS = (
    "real cluster of 5 executors with 2 slots, events with a service time; published: 8 to 28 instances"
)


def convergence_cluster(quick: bool, progress: Progress) -> PartResult:
    """Six queries from the fewest executors and from all."""
    from penstock.bench.convergence import QUERIES, Length, by_query, measured

    found, failures = measured(QUERIES[:1] if quick else QUERIES, Length(), progress)
    findings = [finding(query, mine) for query, mine in by_query(found).items()]
    return PartResult([*findings, *unmeasured(failures, len(found), CONDITIONS)], [steps_chart(found)])


def finding(query: int, mine: Sequence[Convergence]) -> Finding:
    """At most three steps, and the same size from every start, within one executor, that is not too small."""
    from penstock.bench.convergence import INITIAL_EXECUTORS, MOST_STEPS, SHAPE, SLOTS_OF_SERVICE, spread

    steps = max(len(one.decided) for one in mine)
    ours = "; ".join(
        f"from {one.initial}: {' → '.join(map(str, one.decided)) or f'stays at {one.final}'}" for one in mine
    )
    enough = all(one.final * SHAPE.cores >= SLOTS_OF_SERVICE for one in mine)
    agrees = steps <= MOST_STEPS and spread(mine) <= 1 and enough
    name, claim = (
        f"Q{query} on the cluster (table 4)",
        "the same size from every start, in at most three steps",
    )
    if len(mine) < len(INITIAL_EXECUTORS):
        why = "it could not be measured from the other start"
        return incomparable(name, claim, ours, why, conditions=CONDITIONS)
    why = "sizes in executors; within one counts as the same"
    if not enough:
        why = f"{SLOTS_OF_SERVICE:g} slots are busy with service alone, and an executor has {SHAPE.cores}"
    return agreed(name, claim, ours, agrees, why=why, conditions=CONDITIONS)


def steps_chart(found: Sequence[Convergence]) -> Chart:
    """Sizes by step, one line a run."""
    series = [
        (
            f"Q{one.query} from {one.initial}",
            [float(step) for step in range(len(one.decided) + 1)],
            [float(one.initial), *map(float, one.decided)],
        )
        for one in found
    ]
    return Chart("sizes step by step (table 4)", "step", "executors", series, steps=True, points=True)
