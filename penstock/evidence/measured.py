"""Parts that run a benchmark on this machine and hold its report beside the papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from penstock.bench.report import BenchReport, Row
from penstock.evidence.findings import Chart, Finding, PartResult, incomparable, judged

Progress = Callable[[str], None]

OTHER_MACHINE = "published on other machines"
SIZED = "one real application of known need, restarted by its supervisor"


def bench(name: str, quick: bool, progress: Progress) -> BenchReport:
    """Run a benchmark."""
    report: BenchReport = import_module(f"penstock.bench.{name}").run(quick, progress)
    return report


def autrascale_cost(quick: bool, progress: Progress) -> PartResult:
    """AuTraScale table IV: processor time of its algorithms."""
    report = bench("autrascale", quick, progress)
    published: dict[str, Any] = report.published
    findings, lines = [], []
    for key in ("train_s", "use_s", "transfer_s"):
        ours = [row[key] for row in report.results]
        for operators, figure, value in zip(published["operators"], published[key], ours, strict=True):
            name = f"{key}, {operators} operators"
            findings.append(judged(name, figure, round(value, 6), conditions=OTHER_MACHINE))
        lines += [(f"{key}, published", published["operators"], published[key])]
        lines += [(f"{key}, ours", published["operators"], ours)]
    return PartResult(findings, [Chart("table IV", "operators", "seconds", lines)], report.notes)


def sizing(_quick: bool, progress: Progress) -> PartResult:
    """Sage: how far the final size is above the least that does, and what it took to get there."""
    # the benchmark's quick run: its full one takes longer than all other parts together
    report = bench("sizing", True, progress)
    return PartResult(sizing_findings(report.results), notes=report.notes)


def sizing_findings(rows: Sequence[Row]) -> list[Finding]:
    """One over-size for all rows, and actions and pauses of each."""
    over = [row["final_over_optimal"] for row in rows if row.get("final_over_optimal") is not None]
    worst = round(max(over) - 1, 4) if over else None
    found = [judged("over the hand-tuned size, at most", 0.14, worst, conditions=SIZED)]
    why = "the paper's applications and their hours are not ours"
    for row in rows:
        name = f"{row['case']}, started {row['start']}-sized: until the size was found"
        ours = f"{row['actions']} restarts, {row['pause_seconds']:.0f} s without batches in all"
        found.append(incomparable(name, None, ours, why, conditions=SIZED))
    return found
