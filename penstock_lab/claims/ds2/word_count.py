"""DS2, figures 1, 6, 7, 8 and 10 on a real cluster: the word count, and the cost of watching it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from penstock_lab.claims.claim import Chart, Claim, Judged, Verdict, add_conditions
from penstock_lab.experiments.batches import BatchSeen, time_settled_batch
from penstock_lab.experiments.measurement import Measurement, Row
from penstock_lab.experiments.overhead import ATTACHED, Ratio
from penstock_lab.experiments.word_count.query import (
    DS2,
    DYNAMIC_ALLOCATION,
    HIGH_RATE,
    LOAD_AFTER_SECONDS,
    RUNNERS,
    TRIGGER_SECONDS,
    BatchSeconds,
    ClusterRun,
    WordCountCase,
    WordCounts,
    take_medians,
)

SCALED = "real cluster, rates and slots scaled down, paced operators"
FIGURES = {"under": "DS2, figures 1 and 6", "over": "DS2, figure 7", "two-phase": "DS2, figure 7"}
FIGURE_8, FIGURE_10 = "DS2, figure 8", "DS2, figure 10"
PUBLISHED_STEPS = {"under": 1, "over": 2, "two-phase": 2}
"""Up: Heron (figure 6); down, and two phases: Flink (figure 7)."""
PUBLISHED: dict[str, Any] = {
    "dhalion_steps": 6,
    "dhalion_flat_map_instances": 22,
    "dhalion_count_instances": 30,
    "dhalion_seconds_to_converge": 2000,
    "ds2_heron_steps": 1,
    "ds2_heron_flat_map_instances": 10,
    "ds2_heron_count_instances": 20,
    "ds2_heron_seconds_to_converge": 60,
    "ds2_flink_steps_up": 2,
    "ds2_flink_steps_down": 2,
}
SIZES_CLAIM = "the chosen size keeps up, one smaller does not"
Runs = Mapping[tuple[str, str], ClusterRun]
ATTACHING = "one real application, attached against not attached; published: Flink, per-record latency"
PUBLISHED_OVERHEAD = {"ds2_flink_latency_ratio": 1.13, "ds2_timely_latency_ratio": 1.20}
MOST_ATTACHED = PUBLISHED_OVERHEAD["ds2_flink_latency_ratio"]
"""Latency of the instrumented Flink over that of the plain one, the largest of six queries."""
LEAST_THROUGHPUT, MOST_LATENCY = 0.99, 1.01


def judge(measured: Measurement) -> Judged:
    """Judge steps, sizes and whether they keep up, with dynamic allocation as the baseline."""
    found: WordCounts = measured.found
    claims: list[Claim] = []
    for case in (case for case in found.cases if (case.name, DS2) in found.rows):
        ours, other = found.rows[case.name, DS2], found.rows.get((case.name, DYNAMIC_ALLOCATION))
        claims += [*judge_case(ours, other), judge_keeping_up(case, found.runs[case.name, DS2])]
        # without a search dynamic allocation is watched for a shorter time
        claims += show_costs(ours, other) if found.tried else []
    if ("under", DS2) in found.rows:
        claims += judge_sizes(take_medians(found.tried).get(HIGH_RATE, {}), found.rows["under", DS2])
    claims += judge_targets(measured.rows)
    charts = [chart for case in found.cases for chart in draw_timelines(case, found.runs)]
    short = "a quick run starts under-provisioned only, and does not search for the least size that keeps up"
    notes = [short] if measured.quick and not found.tried else []
    return Judged(add_conditions(SCALED, claims), [*charts, *draw_sizes(found.tried)], notes, PUBLISHED)


def judge_targets(rows: Sequence[Row]) -> list[Claim]:
    """Judge DS2 over all its cases."""
    ours = [row for row in rows if row["system"] == DS2]
    pairs = [
        (held, best, row["slots_per_executor"])
        for row in ours
        for held, best in zip(row["slots_by_phase"], row["optimal_by_phase"], strict=True)
    ]
    known = bool(pairs) and all(best is not None for _, best, _ in pairs)
    above = max(max(0, held - best) / cores for held, best, cores in pairs) if known else None
    below = max(max(0, best - held) for held, best, _ in pairs) if known else None
    errors = [row["prediction_error"] for row in ours if row["prediction_error"] is not None]
    steps = [count for row in ours for count in row["steps_by_phase"]]
    return [
        Claim.judge_target("most steps after a change of load", "<= 2", max(steps, default=None)),
        Claim.judge_target("executors above the optimum", "<= 1", above),
        Claim.judge_target("slots short of what the load needs", "== 0", below),
        Claim.judge_target("error of the predicted batch time", "<= 0.15", max(errors, default=None)),
    ]


def judge_case(ours: Row, other: Row | None) -> list[Claim]:
    """Judge steps and final size of one case; dynamic allocation is the baseline where it was measured."""
    optimum, final = ours["optimal_slots"], ours["final_slots"]
    if optimum is None:
        return [_judge_case_steps(ours, other)]
    fits, claim = _fits(final, optimum, ours["slots_per_executor"]), "the least that keeps up"
    held = f"dynamic allocation: {other['final_slots']} slots" if other else None
    said, why = f"{final} slots, least {optimum}", "within one executor counts as the least"
    more: dict[str, Any] = {"figure": FIGURES[ours["case"]], "why": why, "baseline": held}
    size = Claim.judge_statement(f"{ours['case']}: final size", claim, said, fits, **more)
    return [_judge_case_steps(ours, other), size]


def _judge_case_steps(ours: Row, other: Row | None) -> Claim:
    """Judge the steps; few are good only where every phase that needed one had one."""
    name, published = f"{ours['case']}: most steps after a change of load", PUBLISHED_STEPS[ours["case"]]
    baseline = f"dynamic allocation: {other['steps']}" if other else None
    steps, figure = max(ours["steps_by_phase"]), FIGURES[ours["case"]]
    found = Claim.judge_steps(name, published, steps, figure=figure, baseline=baseline)
    phases = zip(ours["steps_by_phase"], ours["slots_by_phase"], ours["optimal_by_phase"], strict=True)
    for number, (taken, held, least) in enumerate(phases, start=1):
        if not taken and least is not None and not _fits(held, least, ours["slots_per_executor"]):
            why = f"phase {number} saw no step and ended with {held} slots, least {least}"
            return replace(found, verdict=Verdict.WORSE, why=why)
    return found


def _fits(held: int, least: int, slots_per_executor: int) -> bool:
    return 0 <= held - least <= slots_per_executor


def show_costs(ours: Row, other: Row | None) -> list[Claim]:
    """Show the slots that either held over time, and the records that waited."""
    if other is None:
        return []
    said, beside = (
        f"{row['slot_seconds']:,} slot-seconds held, {row['backlog_record_seconds']:,} record-seconds waited"
        for row in (ours, other)
    )
    name, why = f"{ours['case']}: slots held and records that waited, over time", "the paper has neither"
    return [Claim.show_beside(name, None, said, why, baseline=f"dynamic allocation: {beside}")]


def judge_keeping_up(case: WordCountCase, run: ClusterRun) -> Claim:
    """Judge whether batches of the usual size end within the trigger interval at the chosen size."""
    trigger, rate = TRIGGER_SECONDS, case.phases[-1][1]
    slots = run.slots[-1].slots
    changed = [after.at for before, after in pairwise(run.slots) if before.slots != after.slots]
    since = max(changed, default=run.origin)
    seconds = time_settled_batch(run.batches, since + trigger, run.ended, rate * trigger)
    name, figure = f"{case.name}: the size chosen keeps up", FIGURES[case.name]
    if seconds is None:
        larger = [one for one in run.batches if one.start >= since and one.records > rate * trigger]
        return _judge_catching_up((name, figure), larger, slots, rate)
    said = f"{slots} slots: batches of {seconds:.1f} s every {trigger:g} s"
    return Claim.judge_statement(name, "yes", said, seconds <= trigger, figure=figure)


def _judge_catching_up(
    named: tuple[str, str], batches: Sequence[BatchSeen], slots: int, rate: float
) -> Claim:
    """Judge a size that still works off a backlog by whether it reads more than is offered."""
    name, figure = named
    read = max((batch.records / batch.seconds for batch in batches), default=0.0)
    # the first batch starts Python on new executors: slow as it is, it says nothing
    if read < rate and len(batches) < 2:
        why = "too few batches at that size ended before the run did"
        return Claim.show_beside(name, "yes", f"{slots} slots", why, figure=figure)
    said = f"{slots} slots: {read:.0f} sentences a second, {rate:.0f} are offered, while it catches up"
    return Claim.judge_statement(name, "yes", said, read >= rate, figure=figure)


def judge_sizes(by_slots: Mapping[int, float], ours: Row) -> list[Claim]:
    """Judge figure 8: the chosen size keeps up, one executor fewer does not."""
    chosen, step = ours["final_slots"], ours["slots_per_executor"]
    if not by_slots:
        return []
    keeps = {slots: by_slots[slots] <= TRIGGER_SECONDS for slots in sorted(by_slots)}
    # sizes below one that falls behind are not tried: they fall behind, too
    near = [slots for slots in keeps if abs(slots - chosen) <= step] or [min(keeps)]
    said = ", ".join(f"{slots}: {by_slots[slots]:.1f} s" for slots in near)
    agrees = keeps.get(chosen, False) and not keeps.get(chosen - step, False)
    why = f"batches of {TRIGGER_SECONDS:g} s' records on slots; longer ones fall behind"
    said = f"chose {chosen} slots; {said}"
    return [
        Claim.judge_statement(
            "sizes beside the chosen one", SIZES_CLAIM, said, agrees, figure=FIGURE_8, why=why
        )
    ]


def draw_timelines(case: WordCountCase, runs: Runs) -> list[Chart]:
    """Draw slots held and sentences read over time, as in figures 1, 6 and 7."""
    slots, rates, end = [], [], 0.0
    for system in (system for system in RUNNERS if (case.name, system) in runs):
        run = runs[case.name, system]
        zero = run.origin + LOAD_AFTER_SECONDS
        end = max(end, run.ended - zero)
        held = [float(sample.slots) for sample in run.slots]
        slots.append((system, [sample.at - zero for sample in run.slots], held))
        rates.append((system, *_measure_throughput(run.batches, zero)))
    if not slots:
        return []
    starts, offered = ([*column] for column in zip(*case.phases, strict=True))
    rates.append(("offered", [*starts, end], [*offered, offered[-1]]))
    seconds = "seconds since the load began"
    return [
        Chart(f"{case.name}: slots held (figures 1, 6, 7)", seconds, "slots", slots, steps=True),
        Chart(f"{case.name}: throughput (figures 1, 6, 7)", seconds, "sentences a second", rates, steps=True),
    ]


def _measure_throughput(batches: Sequence[BatchSeen], zero: float) -> tuple[list[float], list[float]]:
    """Return the records a second of each batch, from the end of the one before to its own."""
    read = [batch.records / max(batch.end - before.end, 1e-3) for before, batch in pairwise(batches)]
    return [batch.end - zero for batch in batches] if read else [], [*read, *read[-1:]]


def draw_sizes(tried: BatchSeconds) -> list[Chart]:
    """Draw figure 8: the sentences read a second by size, and the distribution of its batch times."""
    read, charts = [], []
    for rate, by_slots in tried.items():
        sizes, interval = sorted(by_slots), TRIGGER_SECONDS
        # a batch that ends early waits for the next interval
        rates = [rate * interval / max(median(by_slots[slots]), interval) for slots in sizes]
        read.append((f"{rate:g} a second are offered", [str(slots) for slots in sizes], rates))
        lines = [(f"{slots} slots", *accumulate_shares(by_slots[slots])) for slots in sizes]
        title = f"batch times at {rate:g} sentences a second (figure 8, below)"
        charts.append(Chart(title, "seconds", "share of batches", lines, steps=True))
    above = Chart("sentences read by size (figure 8, above)", "slots", "sentences a second", read, bars=True)
    return [above, *charts] if read else []


def accumulate_shares(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the share of values that are no larger, as steps from 0 to 1."""
    ordered = sorted(values)
    return [*ordered[:1], *ordered], [number / len(ordered) for number in range(len(ordered) + 1)]


def judge_overhead(measured: Measurement) -> Judged:
    """Judge the ratios with their intervals."""
    figures = measured.summary
    throughput, latency = (
        Ratio(*(figures.get(key, math.nan) for key in (name, f"{name}_low", f"{name}_high")))
        for name in ("throughput_ratio", "latency_ratio")
    )
    told = throughput.tell(least=LEAST_THROUGHPUT), latency.tell(most=MOST_LATENCY)
    name, why = "throughput attached over not", "the paper has none"
    claims = [
        judge_latency(latency),
        Claim.show_beside(name, None, figures.get("throughput_ratio"), why),
        Claim.judge_target("throughput, attached against not attached", f">= {LEAST_THROUGHPUT}", told[0]),
        Claim.judge_target("batch time, attached against not attached", f"<= {MOST_LATENCY}", told[1]),
    ]
    doubts = [
        f"{what}: not measured; its interval of {ratio.low:.3f} to {ratio.high:.3f} does not tell on which "
        "side of the bound it lies. Run it on a machine that does nothing else"
        for what, ratio, value in (("throughput", throughput, told[0]), ("batch time", latency, told[1]))
        if value is None
    ]
    return Judged(add_conditions(ATTACHING, claims), _draw_blocks(measured.rows), doubts, PUBLISHED_OVERHEAD)


def judge_latency(ratio: Ratio) -> Claim:
    """Judge better or worse only where the published figure lies outside of the interval."""
    why = f"95 % between {ratio.low:.3f} and {ratio.high:.3f}"
    found = Claim.judge_figure(
        "latency attached over not", MOST_ATTACHED, ratio.value, tolerance=0.02, figure=FIGURE_10, why=why
    )
    if found.verdict in (Verdict.BETTER, Verdict.WORSE) and ratio.low <= MOST_ATTACHED <= ratio.high:
        return replace(found, verdict=Verdict.NOT_COMPARABLE, why=f"{why}: it cannot be told")
    return found


def _draw_blocks(rows: Sequence[Row]) -> list[Chart]:
    """Draw the batch times of the blocks, spread and in turn; those without the autopilot first."""
    bars = Chart.group_rows(
        sorted(rows, key=lambda row: row["system"] == ATTACHED),
        lambda row: float(row["case"].removeprefix("block ")),
        lambda row: row["batch_seconds"],
    )
    return [
        Chart("batch time by block, spread (figure 10)", "", "seconds", bars, boxes=True),
        Chart("batch time of each block, in turn", "block", "seconds", bars, bars=True),
    ]
