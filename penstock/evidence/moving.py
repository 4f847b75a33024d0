"""State that moves while queries run: key-count sweeps and Nexmark queries, by the benchmarks' own cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.bench.report import Row
from penstock.evidence.findings import Chart, PartResult, unmeasured
from penstock.evidence.loads import OTHER_RATES, load_chart, load_findings
from penstock.evidence.running import in_short
from penstock.evidence.stalls import QUERIES, gain_findings, memory_findings, size_findings

if TYPE_CHECKING:
    from penstock.bench.migration import Case
    from penstock.bench.migration_rows import Phase
    from penstock.bench.nexmark_migration import Moved

Progress = Callable[[str], None]
Measured = Callable[[Sequence["Case"], Progress], tuple[list["Phase"], list[str]]]

KEY_COUNT = "key-count on a real cluster; published: a quarter of the state moved on Timely"
NEXMARK = (
    "Nexmark on a real cluster, its state small; published: a quarter of the state moved on Timely, batched"
)

SPARK_ALONE = (
    "spark-added: an executor is added and Spark left alone with it; spark-killed: an executor is killed, "
    "which is how Spark by itself gets state away from it."
)


def migration(quick: bool, progress: Progress) -> PartResult:
    """Figures 5.1 and 5.15 to 5.19: latency over time, state sizes, bins and load, and memory."""
    from penstock.bench import migration as bench
    from penstock.bench.migration_rows import ADDED, KILLED

    cases = _cases(quick)
    phases, failures = bench.measured(cases, progress)
    loaded, others = (PartResult(()), []) if quick else over_loads(cases[1], phases, bench.measured, progress)
    rows = [phase.row() for phase in phases]
    told = {(phase.case, phase.system): phase.note for phase in phases if phase.note}
    by_case = _by_case(phases)
    charts = [timeline(f"{case} (figure 5.1)", mine) for case, mine in by_case.items()]
    findings = [
        *gain_findings(rows, {}, KEY_COUNT, told),
        *size_findings(phases, KEY_COUNT),
        *loaded.findings,
        *memory_findings(rows, KEY_COUNT, told),
        *unmeasured([*failures, *others], len(phases) + len(loaded.findings), KEY_COUNT),
    ]
    notes = [f"{case}, {system}: {note}" for (case, system), note in told.items()]
    if {ADDED, KILLED} & {phase.system for phase in phases}:
        notes.append(SPARK_ALONE)
    if quick:
        notes.append("Sweeps (figures 5.15 to 5.18) are left to the full run.")
    return PartResult(findings, [*charts, *sweeps(rows), *loaded.charts, *memory_over_time(phases)], notes)


def _cases(quick: bool) -> list[Case]:
    """Twice the keys in as many bins, as many keys in twice the bins, and as many keys a bin.

    Bins go one way in all of them: there and back would take twice as long whatever the state.
    """
    from penstock.bench.migration import MAIN, Case
    from penstock.bench.migration_rows import ADDED, ALL_AT_ONCE, FLUID, KILLED

    both = (ALL_AT_ONCE, FLUID)
    if quick:
        return [Case(200_000, 8, both, 5_000, 2.0, steady_batches=3, after_batches=1, back=False)]
    return [
        replace(MAIN, systems=(ADDED, *both, KILLED), steady_batches=8, after_batches=3, back=False),
        Case(1_500_000, 16, both, steady_batches=8, after_batches=3, back=False),
        Case(3_000_000, 32, both, 5_000, 5.0, steady_batches=6, after_batches=3, back=False),
    ]


def over_loads(
    case: Case, phases: Sequence[Phase], measured: Measured, progress: Progress
) -> tuple[PartResult, list[str]]:
    """The case that was measured at its usual rate, at the others; and what could not be measured."""
    usual = [phase for phase in phases if (phase.keys, phase.bins) == (case.keys, case.bins)]
    loads: dict[int, Sequence[Phase]] = {case.records_per_second: usual} if usual else {}
    failures = []
    for rate in OTHER_RATES:
        progress(f"{rate:,} records a second")
        other = replace(case, records_per_second=rate, steady_batches=6, after_batches=2)
        try:
            found, failed = measured([other], progress)
        except Exception as error:
            # the other figures of this part took a quarter of an hour, and stand without this one
            found, failed = [], [f"{type(error).__name__}: {in_short(str(error))}"]
        loads |= {rate: found} if found else {}
        failures += [f"at {rate:,} records/s: {failure}" for failure in failed]
    findings = load_findings(loads, case.records_per_second, case.trigger_seconds, KEY_COUNT)
    return PartResult(findings, load_chart(loads)), failures


def migration_queries(quick: bool, progress: Progress) -> PartResult:
    """Figures 5.6 to 5.11: latency over time while the state of queries 3 to 8 moves."""
    from penstock.bench import nexmark_migration as bench

    queries = bench.QUICK_QUERIES if quick else bench.QUERIES
    moved, failures = bench.measured(queries, bench.QUICK if quick else bench.FULL, progress)
    rows = [one.row() for one in moved]
    told = {(f"q{one.query}", one.system): one.note for one in moved if one.note}
    findings = [*gain_findings(rows, QUERIES, NEXMARK, told), *unmeasured(failures, len(moved), NEXMARK)]
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


def memory_over_time(phases: Sequence[Phase]) -> list[Chart]:
    """Resident memory of the first case around each migration (figure 5.19)."""
    series = [
        (
            phase.system,
            [round(at - phase.start, 2) for at, _ in phase.memory],
            [size / 2**30 for _, size in phase.memory],
        )
        for phase in phases
        if phase.memory and phase.case == phases[0].case
    ]
    if not series:
        return []
    title = f"{phases[0].case}: memory while state moves (figure 5.19)"
    return [Chart(title, "seconds since the migration began", "resident memory, GiB", series)]


def _by_case(phases: Sequence[Phase]) -> Mapping[str, list[Phase]]:
    cases: dict[str, list[Phase]] = {}
    for phase in phases:
        cases.setdefault(phase.case, []).append(phase)
    return cases
