"""The image pipeline of Elastic Pulsar Functions: simulated, and on a cluster by its benchmark's own runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.bench.report import Row
from penstock.dataflow.metrics import Integers
from penstock.evidence.findings import Chart, Finding, PartResult, agreed, incomparable
from penstock.evidence.simulated import floats, sampled, simulated
from penstock.simulate.comparison import Comparison, compare
from penstock.simulate.loading import load
from penstock.simulate.run import Run
from penstock.simulate.virtual import LATENCY, QUEUED

if TYPE_CHECKING:
    from penstock.bench.images import Seen

Progress = Callable[[str], None]

CONDITIONS = "real cluster, the paper's stretches of ten minutes compressed, service times paced"
FIGURES = {"threshold": "figures 5 and 6", "queueing": "figure 7", "ds2": "figure 8"}
FIGURED = {
    "mean_response_s": "mean response time, s",
    "peak_response_s": "longest response time, s",
    "mean_instances": "mean instances",
}
"""Field of the benchmark's rows and of its published figures → what it is."""
MEANS: Mapping[str, tuple[float, float]] = {
    "threshold": (23.0, 3.5),
    "queueing": (1.03, 5.0),
    "ds2": (2.7, 4.5),
}
"""Policy → mean response time in seconds, function instances ("most of the time" for queueing)."""
MOST_WAITING = 150
"""The paper's upper threshold, and the policy's own default."""
UNPUBLISHED = "rates and service times are not published as numbers: only the policies' order can be compared"
ORDERS = {
    "mean_response_s": ("order of the response times", "queueing < ds2 < threshold"),
    "mean_instances": ("order of the instances", "threshold < ds2 < queueing"),
}
ALIKE = 1.02
"""Two means that are closer than this say nothing about which policy comes first."""
SERVED_SHARE = 0.9
"""Of the images: with fewer recognised, what the others had waited so far weighs in a policy's mean."""


def image_pipeline(_quick: bool, progress: Progress) -> PartResult:
    """The image pipeline's figures 5 to 8: threshold, queueing and DS2 policies."""
    comparison = compare(load("image-pipeline"), list(MEANS), 0, progress)
    runs = {run.policy: run for run, _ in comparison.runs}
    means = {policy: float(run.seen[:, LATENCY].mean()) for policy, run in runs.items()}
    instances = {policy: float(_held(run).mean()) for policy, run in runs.items()}
    findings: list[Finding] = []
    for policy, (latency, count) in MEANS.items():
        late, held = round(means[policy], 2), round(instances[policy], 2)
        said = f"{policy}, mean response time, s ({FIGURES[policy]})"
        findings.append(incomparable(said, latency, late, UNPUBLISHED))
        said = f"{policy}, mean instances ({FIGURES[policy]})"
        findings.append(incomparable(said, count, held, UNPUBLISHED))
    findings += [
        order(*ORDERS["mean_response_s"], means),
        order(*ORDERS["mean_instances"], instances),
        _brought_back(runs["threshold"]),
    ]
    return PartResult([simulated(one) for one in findings], _timelines(comparison))


def _brought_back(threshold: Run) -> Finding:
    """Figure 5: whether what waits goes below the upper threshold again whenever it was above."""
    waits = threshold.seen[:, QUEUED]
    over = (
        f"above {MOST_WAITING} for {np.mean(waits > MOST_WAITING):.0%} of the time, {waits.max():.0f} at most"
    )
    name, claim = "threshold, images that wait (figure 5)", f"brought back below {MOST_WAITING} every time"
    return agreed(name, claim, f"{over}, {waits[-1]:.0f} in the end", bool(waits[-1] <= MOST_WAITING))


def order(result: str, published: str, values: Mapping[str, float], conditions: str = "") -> Finding:
    """The least first; an order by values that hardly differ is none."""
    ranked = sorted(values, key=lambda policy: values[policy])
    ours = " < ".join(f"{policy} {values[policy]:.4g}" for policy in ranked)
    pairs = [(values[less], values[more]) for less, more in pairwise(published.split(" < "))]
    contradicted = any(less > ALIKE * more for less, more in pairs)
    if not contradicted and any(more <= ALIKE * less for less, more in pairs):
        why = f"values within {ALIKE - 1:.0%} of each other are in no order"
        return incomparable(result, published, ours, why, conditions=conditions)
    return agreed(result, published, ours, not contradicted, conditions=conditions)


def _held(run: Run) -> Integers:
    """Instances of all functions in each second; nobody scales the source."""
    counts: Integers = run.held[:, run.experiment.scaled].sum(axis=1)
    return counts


def _timelines(comparison: Comparison) -> list[Chart]:
    seconds = sampled(comparison)
    late = [(run.policy, seconds, floats(run.seen[seconds, LATENCY])) for run, _ in comparison.runs]
    held = [(run.policy, seconds, floats(_held(run)[seconds])) for run, _ in comparison.runs]
    threshold, _ = comparison.runs[0]
    waiting = [(threshold.policy, seconds, floats(threshold.seen[seconds, QUEUED]))]
    return [
        Chart("figure 5: images that wait", "seconds", "images", waiting),
        Chart("figures 6 to 8: response time", "seconds", "seconds", late),
        Chart("figures 6 to 8: instances", "seconds", "instances", held),
    ]


def image_pipeline_cluster(_quick: bool, progress: Progress) -> PartResult:
    """Response times and instances under three policies, and which comes first."""
    from penstock.bench import images as bench
    from penstock.bench.spark_cluster import cluster

    seconds = bench.STRETCH_SECONDS
    seen, rows = {}, []
    with cluster(bench.SHAPE) as spark:
        progress("warming up")
        bench.warm_up(spark)
        for policy in bench.POLICIES:
            progress(f"{policy}: {len(bench.RATES) * seconds:.0f} s")
            seen[policy] = bench.run_policy(spark, policy, bench.RATES, seconds)
            rows.append(bench.row_of(policy, seen[policy]))
    charts = [responses(seen), instances(seen)]
    return PartResult(image_findings(rows, bench.PUBLISHED), charts, bench.notes(bench.RATES, seconds))


def image_findings(rows: Sequence[Row], published: Mapping[str, Any]) -> list[Finding]:
    """The figures of every policy, and the order of the policies."""
    found: list[Finding] = []
    for row in rows:
        policy, figure = row["system"], FIGURES.get(row["system"], "")
        left = "" if row["recognised"] >= SERVED_SHARE * row["images"] else _unserved(row)
        said = f"{UNPUBLISHED}; {left}" if left else UNPUBLISHED
        for key, name in FIGURED.items():
            theirs = published.get(f"{policy}_{key}")
            result = f"{policy}, {name} ({figure})"
            found.append(incomparable(result, theirs, row[key], said, conditions=CONDITIONS))
    return [*found, *_orders(rows)]


def _unserved(row: Row) -> str:
    there = f"of {row['images']} images {row['recognised']} were recognised when the run ended"
    return f"{there}, and the others count with what they had waited"


def _orders(rows: Sequence[Row]) -> list[Finding]:
    if any(row["mean_response_s"] is None for row in rows):
        return []
    return [
        order(name, claim, {row["system"]: row[key] for row in rows}, CONDITIONS)
        for key, (name, claim) in ORDERS.items()
    ]


def responses(seen: Mapping[str, Seen]) -> Chart:
    """Mean response time of the images that arrived in each second (figures 5 to 8)."""
    series = []
    for policy, one in seen.items():
        arrived, times = one.responses()
        if not len(arrived):
            continue
        places, which = np.unique(np.floor(arrived - arrived.min()).astype(np.int64), return_inverse=True)
        means = np.bincount(which, weights=times) / np.bincount(which)
        series.append((policy, [float(place) for place in places], [round(float(mean), 3) for mean in means]))
    title = "response time (figures 5 to 8)"
    return Chart(title, "seconds since the first image", "seconds", series, logarithmic="y")


def instances(seen: Mapping[str, Seen]) -> Chart:
    """Function instances over time (figures 5 to 8)."""
    series = [
        (policy, [float(second) for second in range(len(one.instances))], [float(n) for n in one.instances])
        for policy, one in seen.items()
    ]
    return Chart("instances (figures 5 to 8)", "seconds", "instances", series, steps=True)
