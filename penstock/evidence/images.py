"""The image pipeline of Elastic Pulsar Functions on a real cluster, by its benchmark's own runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from penstock.bench.report import Row
from penstock.evidence.findings import Chart, Finding, PartResult, agreed, incomparable

Progress = Callable[[str], None]

STRETCH_SECONDS = 30.0
CONDITIONS = "real cluster, the paper's stretches of ten minutes compressed, service times paced"
FIGURES = {"threshold": "figures 5 and 6", "queueing": "figure 7", "ds2": "figure 8"}
SERVED_SHARE = 0.9
"""Of the images: with fewer recognised, a policy's mean leaves out those that waited longest."""


def image_pipeline_cluster(_quick: bool, progress: Progress) -> PartResult:
    """Response times and instances under three policies, and which comes first."""
    bench: Any = import_module("penstock.bench.images")
    seen, rows = {}, []
    with bench.cluster(bench.SHAPE) as spark:
        for policy in bench.POLICIES:
            progress(f"{policy}: {len(bench.RATES) * STRETCH_SECONDS:.0f} s")
            seen[policy] = bench.run_policy(spark, policy, bench.RATES, STRETCH_SECONDS)
            rows.append(bench.row_of(policy, seen[policy]))
    charts = [responses(seen), instances(seen)]
    return PartResult(
        image_findings(rows, bench.PUBLISHED), charts, bench.notes(bench.RATES, STRETCH_SECONDS)
    )


def image_findings(rows: Sequence[Row], published: Mapping[str, Any]) -> list[Finding]:
    """Both figures of every policy, and the order of the policies."""
    why = "rates and service times are not published as numbers: only the policies' order can be compared"
    found: list[Finding] = []
    for row in rows:
        policy, figure = row["system"], FIGURES.get(row["system"], "")
        left = "" if row["recognised"] >= SERVED_SHARE * row["images"] else _unserved(row)
        said = f"{why}; {left}" if left else why
        for name, key in (("mean response time, s", "mean_response_s"), ("mean instances", "mean_instances")):
            theirs = published.get(f"{policy}_{key}")
            result = f"{policy}, {name} ({figure})"
            found.append(incomparable(result, theirs, row[key], said, conditions=CONDITIONS))
    return [*found, *_orders(rows)]


def _unserved(row: Row) -> str:
    return (
        f"of {row['images']} images {row['recognised']} were recognised in time, and only these are counted"
    )


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


def responses(seen: Mapping[str, Any]) -> Chart:
    """Mean response time of the images that were recognised in each second (figures 5 to 8)."""
    series = []
    for policy, one in seen.items():
        if not len(one.arrived):
            continue
        second = np.floor(one.finished - one.arrived.min()).astype(np.int64)
        places, which = np.unique(second, return_inverse=True)
        means = np.bincount(which, weights=one.finished - one.arrived) / np.bincount(which)
        series.append((policy, [float(place) for place in places], [round(float(mean), 3) for mean in means]))
    title = "response time (figures 5 to 8)"
    return Chart(title, "seconds since the first image", "seconds", series, logarithmic="y")


def instances(seen: Mapping[str, Any]) -> Chart:
    """Function instances over time (figures 5 to 8)."""
    series = [
        (policy, [float(second) for second in range(len(one.instances))], [float(n) for n in one.instances])
        for policy, one in seen.items()
    ]
    return Chart("instances (figures 5 to 8)", "seconds", "instances", series, steps=True)
