"""DS2 and Spark's dynamic allocation on the word count of a real cluster, by the benchmark's own cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from penstock.bench.report import Row
from penstock.bench.traces import BatchSeen, settled_batch_seconds
from penstock.evidence.findings import (
    Chart,
    Finding,
    PartResult,
    Verdict,
    agreed,
    incomparable,
    judged,
    steps_judged,
    unmeasured,
)
from penstock.evidence.running import in_short

if TYPE_CHECKING:
    from penstock.bench.spark_experiment import Run
    from penstock.bench.wordcount import BatchSeconds, Case

Progress = Callable[[str], None]
Runs = dict[tuple[str, str], "Run"]

SCALED = "real cluster, rates and slots scaled down, paced operators"
DYNAMIC = "dynamic-allocation"
QUICK_SECONDS = {"ds2": 62.0, DYNAMIC: 16.0}
"""Of load, in a quick run: DS2's steps come within the first half minute, dynamic allocation's at once."""
ATTACHING = "one real application, attached against not attached; published: Flink, per-record latency"
MOST_ATTACHED = 1.13
"""Latency of the instrumented Flink over that of the plain one, the largest of six queries."""
PUBLISHED_STEPS = {"under": 1, "over": 2, "two-phase": 2}
"""Up as on Heron (figure 6); down, and up and down again, as on Flink (figure 7)."""


def word_count(quick: bool, progress: Progress) -> PartResult:
    """Figures 1, 6 and 7: steps and sizes of both; a quick run has one case and searches no optimum."""
    from penstock.bench import wordcount

    cases = [wordcount.UNDER] if quick else [wordcount.UNDER, wordcount.OVER, wordcount.TWO_PHASE]
    rates = [wordcount.HIGH_RATE, wordcount.LOW_RATE]
    tried: BatchSeconds = (
        {} if quick else wordcount.search(rates, wordcount.SIZES, wordcount.BATCHES, progress)
    )
    seconds = wordcount.medians(tried)
    optimum = {rate: wordcount.least_that_keeps_up(seconds.get(rate, {})) for rate in rates}
    runs, rows, failures = _run(cases, optimum, quick, progress)
    findings: list[Finding] = []
    for case in (case for case in cases if (case.name, "ds2") in rows):
        findings += case_findings(rows[case.name, "ds2"], rows.get((case.name, DYNAMIC)))
        findings += kept_up(case, runs[case.name, "ds2"])
        # in a quick run dynamic allocation is watched for a shorter time
        findings += [] if quick else costs_beside(rows[case.name, "ds2"], rows.get((case.name, DYNAMIC)))
    if ("under", "ds2") in rows:
        findings += size_findings(seconds.get(wordcount.HIGH_RATE, {}), rows["under", "ds2"])
    findings += unmeasured(failures, len(rows), SCALED)
    charts = [chart for case in cases for chart in timelines(case, runs)]
    charts += size_charts(tried)
    return PartResult(findings, charts, _notes(quick))


def _run(
    cases: Sequence[Case], optimum: Mapping[float, int | None], quick: bool, progress: Progress
) -> tuple[Runs, dict[tuple[str, str], Row], list[str]]:
    """Every case with both systems; one that fails leaves the others their quarter of an hour."""
    from penstock.bench import wordcount

    runs: Runs = {}
    rows: dict[tuple[str, str], Row] = {}
    failures = []
    for case in cases:
        for system, runner in wordcount.RUNNERS.items():
            shortened = replace(case, seconds=QUICK_SECONDS[system]) if quick else case
            progress(f"{case.name}, {system}: {wordcount.LOAD_AFTER_SECONDS + shortened.seconds:.0f} s")
            try:
                runs[case.name, system] = run = runner(shortened.experiment())
            except Exception as error:
                failures.append(f"{case.name}, {system} could not be measured: {in_short(str(error))}")
            else:
                rows[case.name, system] = wordcount.row_of(shortened, system, run, optimum)
    return runs, rows, failures


def case_findings(ours: Row, other: Row | None) -> list[Finding]:
    """Steps and final size of one case, dynamic allocation as the baseline where it was measured."""
    case, optimum, final = ours["case"], ours["optimal_slots"], ours["final_slots"]
    found = [_steps_finding(ours, other)]
    if optimum is None:
        return found
    fits = _fits(final, optimum, ours["slots_per_executor"])
    held = f"dynamic allocation: {other['final_slots']} slots" if other else None
    said, why = f"{final} slots, least {optimum}", "within one executor counts as the least"
    claim = "the least that keeps up"
    return [
        *found,
        agreed(f"{case}: final size", claim, said, fits, why=why, baseline=held, conditions=SCALED),
    ]


def _steps_finding(ours: Row, other: Row | None) -> Finding:
    """Few steps are good only where every phase that needed one had one."""
    found = steps_judged(
        f"{ours['case']}: most steps after a change of load",
        PUBLISHED_STEPS[ours["case"]],
        max(ours["steps_by_phase"]),
        baseline=f"dynamic allocation: {other['steps']}" if other else None,
        conditions=SCALED,
    )
    phases = zip(ours["steps_by_phase"], ours["slots_by_phase"], ours["optimal_by_phase"], strict=True)
    for number, (steps, held, least) in enumerate(phases, start=1):
        if not steps and least is not None and not _fits(held, least, ours["slots_per_executor"]):
            why = f"phase {number} saw no step and ended with {held} slots, least {least}"
            return replace(found, verdict=Verdict.WORSE, why=why)
    return found


def _fits(held: int, least: int, slots_per_executor: int) -> bool:
    return 0 <= held - least <= slots_per_executor


def costs_beside(ours: Row, other: Row | None) -> list[Finding]:
    """What either took to carry the same load: slots held over time, and records that waited."""
    if other is None:
        return []
    said, beside = (
        f"{row['slot_seconds']:,} slot-seconds held, {row['backlog_record_seconds']:,} record-seconds waited"
        for row in (ours, other)
    )
    name, why = f"{ours['case']}: slots held and records that waited, over time", "the paper has neither"
    shown = {"baseline": f"dynamic allocation: {beside}", "conditions": SCALED}
    return [incomparable(name, None, said, why, **shown)]


def kept_up(case: Case, run: Run) -> list[Finding]:
    """Whether batches of the usual size end within the trigger interval, at the size that was chosen."""
    from penstock.bench import wordcount

    trigger, rate = wordcount.TRIGGER_SECONDS, case.phases[-1][1]
    slots = run.slots[-1].slots
    changed = [after.at for before, after in pairwise(run.slots) if before.slots != after.slots]
    since = max(changed, default=run.origin)
    seconds = settled_batch_seconds(run.batches, since + trigger, run.ended, rate * trigger)
    name, claim = f"{case.name}: the size chosen keeps up", "yes"
    if seconds is None:
        larger = [one for one in run.batches if one.start >= since and one.records > rate * trigger]
        return [_catches_up(name, larger, slots, rate)]
    said = f"{slots} slots: batches of {seconds:.1f} s every {trigger:g} s"
    return [agreed(name, claim, said, seconds <= trigger, conditions=SCALED)]


def _catches_up(name: str, batches: Sequence[BatchSeen], slots: int, rate: float) -> Finding:
    """While what had waited is still read: whether more is read in a second than is offered."""
    read = max((batch.records / batch.seconds for batch in batches), default=0.0)
    # the first batch starts Python on new executors: slow as it is, it says nothing
    if read < rate and len(batches) < 2:
        why = "too few batches at that size ended before the run did"
        return incomparable(name, "yes", f"{slots} slots", why, conditions=SCALED)
    said = f"{slots} slots: {read:.0f} sentences a second, {rate:.0f} are offered, while it catches up"
    return agreed(name, "yes", said, read >= rate, conditions=SCALED)


def size_findings(by_slots: Mapping[int, float], ours: Row) -> list[Finding]:
    """Figure 8 on the cluster: the chosen size keeps up, one executor fewer does not."""
    from penstock.bench import wordcount

    chosen, step = ours["final_slots"], ours["slots_per_executor"]
    if not by_slots:
        return []
    keeps = {slots: by_slots[slots] <= wordcount.TRIGGER_SECONDS for slots in sorted(by_slots)}
    # sizes below one that falls behind are not tried: they fall behind, too
    near = [slots for slots in keeps if abs(slots - chosen) <= step] or [min(keeps)]
    said = ", ".join(f"{slots}: {by_slots[slots]:.1f} s" for slots in near)
    agrees = keeps.get(chosen, False) and not keeps.get(chosen - step, False)
    why = f"batches of {wordcount.TRIGGER_SECONDS:g} s' records on slots; longer ones fall behind"
    claim = "the chosen size keeps up, one smaller does not"
    return [
        agreed(
            f"sizes beside the chosen {chosen} slots (figure 8)",
            claim,
            said,
            agrees,
            why=why,
            conditions=SCALED,
        )
    ]


def timelines(case: Case, runs: Runs) -> list[Chart]:
    """Slots held and sentences read over time, as in figures 1, 6 and 7."""
    from penstock.bench import wordcount

    slots, rates, end = [], [], 0.0
    for system in (system for system in wordcount.RUNNERS if (case.name, system) in runs):
        run = runs[case.name, system]
        zero = run.origin + wordcount.LOAD_AFTER_SECONDS
        end = max(end, run.ended - zero)
        held = [(sample.at - zero, float(sample.slots)) for sample in run.slots]
        slots.append((system, [at for at, _ in held], [count for _, count in held]))
        rates.append((system, *_throughput(run.batches, zero)))
    phases = [(start, rate) for start, rate in case.phases]
    ends = [*(start for start, _ in phases), end]
    offered = [*(rate for _, rate in phases), phases[-1][1]]
    rates.append(("offered", ends, offered))
    seconds = "seconds since the load began"
    if not slots:
        return []
    return [
        Chart(f"{case.name}: slots held (figures 1, 6, 7)", seconds, "slots", slots, steps=True),
        Chart(f"{case.name}: throughput (figures 1, 6, 7)", seconds, "sentences a second", rates, steps=True),
    ]


def _throughput(batches: Sequence[BatchSeen], zero: float) -> tuple[list[float], list[float]]:
    """What each batch read a second, from the end of the one before to its own."""
    read = [batch.records / max(batch.end - before.end, 1e-3) for before, batch in pairwise(batches)]
    return [batch.end - zero for batch in batches] if read else [], [*read, *read[-1:]]


def size_charts(tried: BatchSeconds) -> list[Chart]:
    """Figure 8: what is read a second by size, and how the times of its batches are distributed."""
    from penstock.bench import wordcount

    read, charts = [], []
    for rate, by_slots in tried.items():
        sizes, interval = sorted(by_slots), wordcount.TRIGGER_SECONDS
        # a batch that ends early waits for the next interval
        rates = [rate * interval / max(median(by_slots[slots]), interval) for slots in sizes]
        read.append((f"{rate:g} a second are offered", [str(slots) for slots in sizes], rates))
        lines = [(f"{slots} slots", *cumulative(by_slots[slots])) for slots in sizes]
        title = f"batch times at {rate:g} sentences a second (figure 8, below)"
        charts.append(Chart(title, "seconds", "share of batches", lines, steps=True))
    above = Chart("sentences read by size (figure 8, above)", "slots", "sentences a second", read, bars=True)
    return [above, *charts] if read else []


def cumulative(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The share of values that are no larger, as steps from 0 to 1."""
    ordered = sorted(values)
    return [*ordered[:1], *ordered], [number / len(ordered) for number in range(len(ordered) + 1)]


def _notes(quick: bool) -> list[str]:
    short = "a quick run starts under-provisioned only, and does not search for the least size that keeps up"
    return [short] if quick else []


def overhead(_quick: bool, progress: Progress) -> PartResult:
    """DS2 figure 10: what watching costs; blocks short enough for a quick run would tell nothing."""
    from penstock.bench.overhead import ATTACHED, Length, measured

    # four comparisons are the fewest that have an interval
    report = measured(Length(quads=4), progress)
    found, rate = report.summary, report.summary.get("throughput_ratio")
    ends = (found.get(f"latency_ratio_{end}", math.nan) for end in ("low", "high"))
    findings = [
        latency_attached(found.get("latency_ratio"), *ends),
        incomparable("throughput attached over not", None, rate, "the paper has none", conditions=ATTACHING),
    ]
    systems = dict.fromkeys(row["system"] for row in report.results)
    bars = [
        (system, *_blocks([row for row in report.results if row["system"] == system]))
        for system in sorted(systems, key=lambda system: system == ATTACHED)
    ]
    charts = [
        Chart("batch time by block, spread (figure 10)", "", "seconds", bars, boxes=True),
        Chart("batch time of each block, in turn", "block", "seconds", bars, bars=True),
    ]
    return PartResult(findings, charts, report.notes)


def latency_attached(ratio: float | None, low: float, high: float) -> Finding:
    """Better or worse only where the published figure lies outside of the interval."""
    why = f"95 % between {low:.3f} and {high:.3f}"
    name = "latency attached over not"
    found = judged(name, MOST_ATTACHED, ratio, tolerance=0.02, why=why, conditions=ATTACHING)
    if found.verdict in (Verdict.BETTER, Verdict.WORSE) and low <= MOST_ATTACHED <= high:
        return replace(found, verdict=Verdict.NOT_COMPARABLE, why=f"{why}: it cannot be told")
    return found


def _blocks(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Numbers of the blocks, so that both sides keep their order in time."""
    numbers = [float(row["case"].removeprefix("block ")) for row in rows]
    return numbers, [row["batch_seconds"] for row in rows]
