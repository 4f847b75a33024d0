"""Parts that run a benchmark on this machine and hold its report beside the papers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from penstock.bench.report import BenchReport, Row
from penstock.evidence.findings import Chart, Finding, PartResult, agreed, incomparable, judged

Progress = Callable[[str], None]

OTHER_MACHINE = "published on other machines"
TABLE_3_3 = {1: 0.06, 2: 0.14, 4: 0.29, 8: 0.62, 16: 1.40, 32: 2.93, 64: 5.91, 128: 13.16, 256: 24.84}
TABLE_3_4 = {1: 1.2, 2: 1.2, 4: 1.2, 8: 1.1, 16: 1.1, 32: 1.0, 64: 0.8, 128: 0.5, 256: 0.4}
"""Snailtrail: length of a snapshot in seconds → latency in seconds, and million events a second."""


def bench(name: str, quick: bool, progress: Progress) -> BenchReport:
    """Run a benchmark."""
    report: BenchReport = import_module(f"penstock.bench.{name}").run(quick, progress)
    return report


def word_count(quick: bool, progress: Progress) -> PartResult:
    """DS2 against Spark's dynamic allocation on a real cluster."""
    report = bench("wordcount", quick, progress)
    ours = {row["case"]: row for row in report.results if row["system"] == "ds2"}
    others = {row["case"]: row for row in report.results if row["system"] != "ds2"}
    findings = [one for case in ours for one in _word_count_case(case, ours[case], others.get(case, {}))]
    bars = [
        (system, list(rows), [row["slot_seconds"] for row in rows.values()])
        for system, rows in (("ds2", ours), ("dynamic allocation", others))
    ]
    return PartResult(findings, [Chart("slots held", "case", "slot-seconds", bars, bars=True)], report.notes)


def _word_count_case(case: str, ours: Row, other: Row) -> list[Finding]:
    scaled = "real cluster, rates and slots scaled down, paced operators"
    published = 2 if case == "two-phase" else 1
    optimum, final = ours["optimal_slots"], ours["final_slots"]
    fits = optimum is not None and 0 <= final - optimum <= ours["slots_per_executor"]
    return [
        judged(
            f"{case}: most steps after a change of load",
            published,
            max(ours["steps_by_phase"]),
            tolerance=0,
            baseline=f"dynamic allocation: {other.get('steps')}",
            conditions=scaled,
        ),
        agreed(
            f"{case}: final size",
            "the least that keeps up",
            f"{final} slots, least {optimum}",
            fits,
            why="within one executor counts as the least",
            baseline=f"dynamic allocation: {other.get('final_slots')} slots",
            conditions=scaled,
        ),
    ]


def overhead(quick: bool, progress: Progress) -> PartResult:
    """DS2 figure 10: what watching costs."""
    report = bench("overhead", quick, progress)
    ratio = report.summary.get("latency_ratio")
    conditions = "one real application, attached against not attached; published: Flink, per-record latency"
    finding = judged("latency attached over not", 1.13, ratio, tolerance=0.02, conditions=conditions)
    throughput = report.summary.get("throughput_ratio")
    shown = incomparable("throughput attached over not", None, throughput, "the paper has none")
    return PartResult([finding, shown], notes=report.notes)


def diagnosis_tables(quick: bool, progress: Progress) -> PartResult:
    """Tables 3.3 and 3.4: latency of a snapshot's analysis, and throughput."""
    report = bench("critical_path", quick, progress)
    rows = {row["window_s"]: row for row in report.results}
    conditions = "generated traces of 30 thousand events a second, one core; published: 32 cores"
    findings = [
        judged(
            f"latency of a snapshot of {seconds} s, in s (table 3.3)",
            TABLE_3_3[seconds],
            row["latency_s"],
            conditions=conditions,
        )
        for seconds, row in rows.items()
        if seconds in TABLE_3_3
    ]
    findings += [
        judged(
            f"million events a second, snapshots of {seconds} s (table 3.4)",
            TABLE_3_4[seconds],
            row["events_per_s"] / 1e6,
            lower_is_better=False,
            conditions=conditions,
        )
        for seconds, row in rows.items()
        if seconds in TABLE_3_4
    ]
    lines = [
        ("published", list(TABLE_3_3), list(TABLE_3_3.values())),
        ("ours", list(rows), [row["latency_s"] for row in rows.values()]),
    ]
    return PartResult(findings, [Chart("table 3.3", "snapshot, s", "latency, s", lines)], report.notes)


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


def migration(quick: bool, progress: Progress) -> PartResult:
    """Figures 5.15 to 5.19: the longest stall of each way to move state."""
    report = bench("migration", quick, progress)
    rows = [row for row in report.results if row.get("max_over_steady") is not None]
    conditions = "key-count on a real cluster; published: a quarter of the state moved on Timely"
    findings: list[Finding] = []
    for case in dict.fromkeys(row["case"] for row in rows):
        worst = {row["system"]: row["max_over_steady"] for row in rows if row["case"] == case}
        fluid, at_once = worst.get("fluid"), worst.get("all-at-once")
        if fluid is None or at_once is None:
            continue
        claim = "fluid stalls far less than all at once"
        ours = f"slowest batch over the steady one: fluid {fluid:.2f}, all at once {at_once:.2f}"
        others = ", ".join(f"{name} {value:.2f}" for name, value in worst.items() if name.startswith("spark"))
        agrees = at_once >= 10 * fluid
        why = "ten times is asked for, as between the paper's curves"
        findings.append(
            agreed(str(case), claim, ours, agrees, why=why, baseline=others or None, conditions=conditions)
        )
    bars = [
        (system, [row["case"] for row in rows if row["system"] == system], _worst(rows, system))
        for system in dict.fromkeys(row["system"] for row in rows)
    ]
    chart = Chart("slowest batch over the steady one", "case", "ratio", bars, bars=True)
    return PartResult(findings, [chart], report.notes)


def _worst(rows: list[Row], system: str) -> list[float | None]:
    return [row["max_over_steady"] for row in rows if row["system"] == system]


def sizing(quick: bool, progress: Progress) -> PartResult:
    """Sage: how far the final size is above the hand-tuned one."""
    report = bench("sizing", quick, progress)
    over = [row["final_over_optimal"] for row in report.results if row.get("final_over_optimal") is not None]
    worst = max(over) - 1 if over else None
    return PartResult([judged("over the hand-tuned size, at most", 0.14, worst)], notes=report.notes)
