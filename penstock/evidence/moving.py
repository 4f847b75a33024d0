"""State that moves while queries run: key-count sweeps and Nexmark queries, by the benchmarks' own cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.bench.report import Row
from penstock.evidence.findings import Chart, PartResult, unmeasured
from penstock.evidence.stalls import QUERIES, gain_findings, memory_findings, size_findings

if TYPE_CHECKING:
    from penstock.bench.migration_rows import Phase
    from penstock.bench.nexmark_migration import Moved

Progress = Callable[[str], None]

KEY_COUNT = "key-count on a real cluster; published: a quarter of the state moved on Timely"
NEXMARK = (
    "Nexmark on a real cluster, its state small; published: a quarter of the state moved on Timely, batched"
)


def migration(quick: bool, progress: Progress) -> PartResult:
    """Figures 5.1, 5.15 to 5.17 and 5.19: latency over time, over state sizes and bins, and memory."""
    from penstock.bench import migration as bench
    from penstock.bench.migration_rows import ADDED, ALL_AT_ONCE, FLUID, KILLED

    both = (ALL_AT_ONCE, FLUID)
    if quick:
        cases = [bench.Case(200_000, 8, both, 5_000, 2.0, steady_batches=3, after_batches=1, back=False)]
    else:
        # twice the keys in as many bins, as many keys in twice the bins, and as many keys a bin
        whole = replace(bench.MAIN, systems=(ADDED, ALL_AT_ONCE, FLUID, KILLED), steady_batches=8)
        half = bench.Case(1_500_000, 16, both, steady_batches=8, after_batches=3, back=False)
        more = bench.Case(3_000_000, 32, both, 5_000, 5.0, steady_batches=6, after_batches=3, back=False)
        cases = [whole, half, more]
    phases, failures = bench.measured(cases, progress)
    rows = [phase.row() for phase in phases]
    told = {(phase.case, phase.system): phase.note for phase in phases if phase.note}
    charts = [timeline(f"{case} (figure 5.1)", mine) for case, mine in _by_case(phases).items()]
    findings = [
        *gain_findings(rows, {}, KEY_COUNT, told),
        *size_findings(phases, KEY_COUNT),
        *memory_findings(rows, KEY_COUNT),
        *unmeasured(failures, len(phases)),
    ]
    notes = [f"{case}, {system}: {note}" for (case, system), note in told.items()]
    notes.append("Figure 5.18, latency over the offered load, is not run.")
    return PartResult(findings, [*charts, *sweeps(rows)], notes)


def migration_queries(quick: bool, progress: Progress) -> PartResult:
    """Figures 5.6 to 5.11: latency over time while the state of queries 3 to 8 moves."""
    from penstock.bench import nexmark_migration as bench

    queries = bench.QUICK_QUERIES if quick else bench.QUERIES
    moved, failures = bench.measured(queries, bench.QUICK if quick else bench.FULL, progress)
    rows = [one.row() for one in moved]
    told = {(f"q{one.query}", one.system): one.note for one in moved if one.note}
    findings = [*gain_findings(rows, QUERIES, NEXMARK, told), *unmeasured(failures, len(moved))]
    notes = [f"{query}, {system}: {note}" for (query, system), note in told.items()]
    charts = [
        timeline(f"query {number} (figure 5.{number + 3})", [one for one in moved if one.query == number])
        for number in dict.fromkeys(one.query for one in moved)
    ]
    return PartResult(findings, charts, notes)


def timeline(title: str, moves: Sequence[Phase | Moved]) -> Chart:
    """Batch latency around each migration, whose start is second 0."""
    series = []
    for one in moves:
        shown = [*one.steady, *one.batches]
        times = [round(batch.start - one.start, 2) for batch in shown]
        series.append((one.system, times, [batch.seconds for batch in shown]))
    x, y = "seconds since the migration began", "batch latency, s"
    return Chart(f"{title}: latency while state moves", x, y, series, points=True, logarithmic="y")


def sweeps(rows: Sequence[Row]) -> list[Chart]:
    """Slowest batch against the migration's duration, one point a case (figures 5.15 to 5.17)."""
    if len({row["case"] for row in rows}) < 2:
        return []
    series = []
    for system in ("all-at-once", "batched", "fluid", "all-at-once-prepared"):
        mine = sorted((row for row in rows if row["system"] == system), key=lambda row: row["duration_s"])
        if mine:
            slowest = [row["max_batch_ms"] / 1000 for row in mine]
            series.append((system, [row["duration_s"] for row in mine], slowest))
    title = "state sizes and bins (figures 5.15 to 5.17)"
    y = "slowest batch, s"
    return [Chart(title, "duration of the migration, s", y, series, points=True, logarithmic="xy")]


def _by_case(phases: Sequence[Phase]) -> Mapping[str, list[Phase]]:
    cases: dict[str, list[Phase]] = {}
    for phase in phases:
        cases.setdefault(phase.case, []).append(phase)
    return cases
