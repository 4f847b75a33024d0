"""Parts that run a benchmark on this machine and hold its report beside the papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from penstock.bench.report import BenchReport, Row
from penstock.evidence.findings import Chart, Finding, PartResult, Verdict, agreed, incomparable, judged

Progress = Callable[[str], None]

ALGORITHMS = {"train_s": "training", "use_s": "use", "transfer_s": "transfer"}
"""Field of the benchmark's rows → which of AuTraScale's steps took that long."""
OTHER_MACHINE = "published on other machines"
SIZED = "real applications of known need, each from over and from under, restarted by their supervisor"
OTHER_PACE = "rules are evaluated every 1.5 s here, so that minutes of watching become seconds"


def bench(name: str, quick: bool, progress: Progress) -> BenchReport:
    """Run a benchmark."""
    report: BenchReport = import_module(f"penstock.bench.{name}").run(quick, progress)
    return report


def autrascale_cost(quick: bool, progress: Progress) -> PartResult:
    """AuTraScale table IV: processor time of its algorithms."""
    report = bench("autrascale", quick, progress)
    published: dict[str, Any] = report.published
    findings, lines = [], []
    for key, what in ALGORITHMS.items():
        ours = [row[key] for row in report.results]
        for operators, figure, value in zip(published["operators"], published[key], ours, strict=True):
            name = f"{what}, s, {operators} operators"
            findings.append(judged(name, figure, round(value, 6), conditions=OTHER_MACHINE))
        lines += [(f"{what}, published", published["operators"], published[key])]
        lines += [(f"{what}, ours", published["operators"], ours)]
    chart = Chart("table IV", "operators", "seconds", lines, points=True, logarithmic="y")
    return PartResult(findings, [chart], report.notes)


def sizing(_quick: bool, progress: Progress) -> PartResult:
    """Sage: how far the final size is above the least that does, and what it took to get there."""
    from penstock.bench import sizing as bench

    # one that needs memory beside the heap and one that needs heap, which is harder to size: all of them
    # take half an hour
    report = bench.report(bench.measured(bench.CASES[:2], (bench.OVER, bench.UNDER), progress))
    return PartResult(sizing_findings(report.results), notes=report.notes)


def sizing_findings(rows: Sequence[Row]) -> list[Finding]:
    """One over-size for all rows, what Sage's paper says of its actions, and the course of each."""
    downs = {what: max(row[f"{what}_downs"] for row in rows) for what in ("heap", "memory")}
    undone = sum(row["undone"] for row in rows)
    said = ", ".join(f"{what}: {count}" for what, count in downs.items())
    minutes = sum(row["sizing_seconds"] for row in rows) / len(rows) / 60
    return [
        _over_size(rows),
        agreed("scale-downs", "at most one each", said, max(downs.values()) <= 1, conditions=SIZED),
        agreed("oscillations", "none", f"{undone} decreases undone", not undone, conditions=SIZED),
        incomparable("sizing time on average, minutes", 40, round(minutes, 1), OTHER_PACE, conditions=SIZED),
        *(_course(row) for row in rows),
    ]


def _over_size(rows: Sequence[Row]) -> Finding:
    """The worst of all; a size that was not the last yet can be too large, but does not show that it fits."""
    over = [row["final_over_optimal"] for row in rows]
    worst = None if any(map(math.isnan, over)) else round(max(over) - 1, 4)
    found = judged("over the hand-tuned size, at most", 0.14, worst, conditions=SIZED)
    late = [f"{row['case']} ({row['start']})" for row in rows if not row["settled"]]
    if late and found.verdict is not Verdict.WORSE:
        why = f"still being sized when the run ended: {', '.join(late)}"
        return replace(found, verdict=Verdict.NOT_COMPARABLE, why=why)
    return found


def _course(row: Row) -> Finding:
    name = f"{row['case']}, started {row['start']}-sized"
    pause = f"{row['pause_seconds']:.0f} s without batches in all"
    ours = f"{row['actions']} restarts, {pause}: {row['course']}"
    late = "" if row["settled"] else "; it was still being sized when the run ended"
    return incomparable(name, None, ours, f"the paper's applications are not ours{late}", conditions=SIZED)
