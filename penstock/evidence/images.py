"""The image pipeline of Elastic Pulsar Functions on a real cluster, by its benchmark's own runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.bench.report import Row
from penstock.evidence.findings import Chart, Finding, PartResult, agreed, incomparable

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
SERVED_SHARE = 0.9
"""Of the images: with fewer recognised, what the others had waited so far weighs in a policy's mean."""


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
    why = "rates and service times are not published as numbers: only the policies' order can be compared"
    found: list[Finding] = []
    for row in rows:
        policy, figure = row["system"], FIGURES.get(row["system"], "")
        left = "" if row["recognised"] >= SERVED_SHARE * row["images"] else _unserved(row)
        said = f"{why}; {left}" if left else why
        for key, name in FIGURED.items():
            theirs = published.get(f"{policy}_{key}")
            result = f"{policy}, {name} ({figure})"
            found.append(incomparable(result, theirs, row[key], said, conditions=CONDITIONS))
    return [*found, *_orders(rows)]


def _unserved(row: Row) -> str:
    there = f"of {row['images']} images {row['recognised']} were recognised when the run ended"
    return f"{there}, and the others count with what they had waited"


def _orders(rows: Sequence[Row]) -> list[Finding]:
    served = all(row["mean_response_s"] is not None for row in rows)
    claims = {
        "mean_response_s": ("order of the response times", "queueing < ds2 < threshold"),
        "mean_instances": ("order of the instances", "threshold < ds2 < queueing"),
    }
    return [
        agreed(name, claim, ours, ours == claim, conditions=CONDITIONS)
        for key, (name, claim) in claims.items()
        if served and (ours := " < ".join(row["system"] for row in sorted(rows, key=lambda row: row[key])))
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
