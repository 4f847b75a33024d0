"""Claims of Megaphone (thesis, chapter 5): stalls and memory while state moves at once or bin by bin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import le
from typing import Any

from penstock_lab.claims.claim import Chart, Claim, Judged, Verdict, add_conditions
from penstock_lab.experiments.measurement import Measurement, Row
from penstock_lab.experiments.moving.key_count import ADDED, KILLED, LOADED, KeyCountPhase, Moves
from penstock_lab.experiments.moving.queries import ALL_AT_ONCE, BATCHED, FLUID, OPTIMIZED, PREPARED, Phase

NEXMARK_CONDITIONS = (
    "Nexmark on a real cluster, its state small; published: a quarter of the state moved on Timely, batched"
)
MOST_OVER_STEADY = 1.5
STALL = 1.5
"""A batch stalls if it takes this many times the usual one, and longer than any while nothing moved."""
PAPER = "Megaphone, "
Doubts = Mapping[tuple[str, str], str]
"""Case and system whose bins did not all move → the note on it."""
KEY_COUNT_CONDITIONS = "key-count on a real cluster; published: a quarter of the state moved on Timely"
SPARK_ALONE = (
    "spark-added: an executor is added and Spark left alone with it; spark-killed: an executor is killed, "
    "which is how Spark by itself gets state away from it."
)
LEAST_GAIN = 10.0
MOST_MEMORY = 1.1
LEAST_SPIKE = 1.5
"""All at once takes 1.86 times the steady memory in the paper, 65 of 35 GiB; this much counts as a spike."""
MOST_GROWTH = 1.5
PUBLISHED = {"megaphone_all_at_once_max_latency_over_fluid": "10 to 100"}
Loads = Mapping[int, Sequence[Phase]]
"""Records offered a second → the phases of the same state at that rate."""
STILL = "not moving"
SERIES = (ALL_AT_ONCE, FLUID, STILL)
LOAD_CLAIM = "hardly changes with the load until the system is saturated"


@dataclass(frozen=True, slots=True)
class Published:
    """A statement of the paper; `gain` is the factor by which all at once is slower, None if it is not."""

    said: str
    gain: float | None
    figure: str = "Megaphone, figure 5.1"


USUAL = Published("10 to 100 times lower latency than all at once", 10.0)
AT_LOADS = replace(USUAL, figure="Megaphone, figure 5.18")
QUERIES: Mapping[str, Published] = {
    "q3": Published("more than 100 ms all at once, 10 ms batched", 10.0, f"{PAPER}figure 5.6"),
    "q4": Published("more than 2 s all at once, up to 100 ms batched", 20.0, f"{PAPER}figure 5.7"),
    "q5": Published("all at once ten times the usual peaks, batched none", 10.0, f"{PAPER}figure 5.8"),
    "q6": Published("as query 4: 20 times", 20.0, f"{PAPER}figure 5.9"),
    "q7": Published("no difference: its state is one value", None, f"{PAPER}figure 5.10"),
    "q8": Published("hardly any latency from either", None, f"{PAPER}figure 5.11"),
}
"""Queries of figures 5.6 to 5.11, whose fine-grained strategy is batched."""


def judge_nexmark(measured: Measurement) -> Judged:
    """Judge latency over time while the state of queries 3 to 8 moves."""
    phases: Sequence[Phase] = measured.found
    fluid = [row["max_over_steady"] for row in measured.rows if row["system"] == FLUID]
    claims = [
        *judge_gains(measured.rows, QUERIES, collect_doubts(phases)),
        Claim.judge_target(
            "fluid max_over_steady, the most", f"<= {MOST_OVER_STEADY}", max(fluid, default=None)
        ),
    ]
    charts = [
        draw_timeline(
            f"query {case[1:]} (figure 5.{int(case[1:]) + 3})", [one for one in phases if one.case == case]
        )
        for case in dict.fromkeys(phase.case for phase in phases)
    ]
    return Judged(add_conditions(NEXMARK_CONDITIONS, claims), charts)


def collect_doubts(phases: Sequence[Phase]) -> dict[tuple[str, str], str]:
    """Collect the notes of phases by case and system."""
    return {(phase.case, phase.system): phase.note for phase in phases if phase.note}


def judge_gains(
    rows: Sequence[Row], published: Mapping[str, Published], doubts: Doubts, usual: Published = USUAL
) -> list[Claim]:
    """Judge each case that has both strategies; all at once and Spark's own ways are the baseline."""
    found = []
    for case in dict.fromkeys(row["case"] for row in rows):
        mine = {row["system"]: row for row in rows if row["case"] == case}
        if FLUID in mine and ALL_AT_ONCE in mine:
            unsure = [doubts[case, system] for system in (ALL_AT_ONCE, FLUID) if (case, system) in doubts]
            found.append(_judge_gain(case, published.get(case, usual), mine, "; ".join(unsure)))
    return found


def _judge_gain(case: str, published: Published, mine: Mapping[str, Row], doubt: str) -> Claim:
    fluid, at_once = mine[FLUID], mine[ALL_AT_ONCE]
    over = {name: row["max_over_steady"] for name, row in mine.items()}
    ours = f"slowest batch over the steady one: fluid {over[FLUID]:.2f}, all at once {over[ALL_AT_ONCE]:.2f}"
    ours += f"; {at_once['bytes_moved'] / 1e6:.1f} MB moved all at once"
    others = ", ".join(f"{name} {value:.2f}" for name, value in over.items() if name != FLUID)
    verdict, why = (Verdict.NOT_COMPARABLE, doubt) if doubt else _compare_gain(published, fluid, at_once)
    return Claim(case, published.said, ours, verdict, why, others, figure=published.figure)


def _compare_gain(published: Published, fluid: Row, at_once: Row) -> tuple[Verdict, str]:
    stalled = {"fluid": is_stall(fluid), "all at once": is_stall(at_once)}
    if published.gain is None:
        names = " and ".join(name for name, stopped in stalled.items() if stopped)
        return (Verdict.WORSE, f"a batch stalls: {names}") if names else (Verdict.REPRODUCED, "")
    if not any(stalled.values()):
        # a claim about stalls cannot be tried where there is none
        return Verdict.NOT_COMPARABLE, "so little state moves that no batch stalls, not even all at once"
    gain = at_once["max_batch_ms"] / fluid["max_batch_ms"]
    slower = f"the slowest batch all at once takes {gain:.1f} times that of fluid"
    verdict = Verdict.REPRODUCED if gain >= published.gain else Verdict.WORSE
    return verdict, f"{slower}, published {published.gain:g} times"


def is_stall(row: Row) -> bool:
    """Return whether the slowest batch of a row counts as a stall."""
    return bool(row["max_over_steady"] > max(STALL, row["steady_max_over_median"]))


def draw_timeline(title: str, phases: Sequence[Phase]) -> Chart:
    """Draw batch latency around each migration, whose start is second 0."""
    series = []
    for one in phases:
        shown = [*one.steady, *one.batches]
        times = [round(batch.start - one.start, 2) for batch in shown]
        series.append((one.system, times, [batch.seconds for batch in shown]))
    x, y = "seconds since the migration began", "batch latency, s"
    return Chart(f"{title}: latency while state moves", x, y, series, points=True, logarithmic="y")


def judge_key_count(measured: Measurement) -> Judged:
    """Judge latency over time, state sizes, bins, load, and memory."""
    moves: Moves = measured.found
    phases, rows = moves.phases, measured.rows
    doubts = collect_doubts(phases)
    claims = [
        *judge_gains(rows, {}, doubts),
        *judge_sizes(phases),
        *judge_loads(moves.loads, LOADED.records_per_second, LOADED.trigger_seconds),
        *judge_memory(rows, doubts),
        *judge_targets(measured.summary),
    ]
    cases = dict.fromkeys(phase.case for phase in phases)
    charts = [
        *(draw_timeline(f"{case} (figure 5.1)", [p for p in phases if p.case == case]) for case in cases),
        *draw_sweeps(rows),
        *draw_loads(moves.loads),
        *draw_memory(phases),
    ]
    notes = [SPARK_ALONE] if {ADDED, KILLED} & {phase.system for phase in phases} else []
    notes += ["Sweeps (figures 5.15 to 5.18) are left to the full run."] if measured.quick else []
    return Judged(add_conditions(KEY_COUNT_CONDITIONS, claims), charts, notes, PUBLISHED)


def judge_targets(figures: Mapping[str, float]) -> list[Claim]:
    """Judge the figures of the main case; what was not measured does not meet its target."""
    return Claim.judge_summary(
        figures,
        ("fluid max_over_steady", f"<= {MOST_OVER_STEADY}", "fluid_max_over_steady"),
        ("all-at-once max over fluid max", f">= {LEAST_GAIN}", "all_at_once_over_fluid"),
        ("fluid max as state grows with bins", f"<= {MOST_GROWTH}", "fluid_growth_with_bins"),
        ("batched max as state grows with bins", f"<= {MOST_GROWTH}", "batched_growth_with_bins"),
        ("fluid peak memory over steady", f"<= {MOST_MEMORY}", "fluid_rss_over_steady"),
    )


def judge_memory(rows: Sequence[Row], doubts: Doubts) -> list[Claim]:
    """Judge figure 5.19: a fluid migration needs hardly any memory, one at once nearly doubles it."""
    found = []
    for case in dict.fromkeys(row["case"] for row in rows):
        mine = {row["system"]: row for row in rows if row["case"] == case and row["steady_rss_bytes"]}
        over = {name: row["peak_rss_bytes"] / row["steady_rss_bytes"] for name, row in mine.items()}
        if FLUID in over:
            found.append(_judge_peaks(case, over, doubts))
    return found


def _judge_peaks(case: str, over: Mapping[str, float], doubts: Doubts) -> Claim:
    """Judge the peaks of both ways: without a spike all at once, a calm fluid migration shows nothing."""
    ours = (
        f"fluid {over[FLUID]:.2f}, all at once {over.get(ALL_AT_ONCE, float('nan')):.2f} times the steady one"
    )
    unsure = [doubts[case, system] for system in (FLUID, ALL_AT_ONCE) if (case, system) in doubts]
    if ALL_AT_ONCE not in over:
        unsure.append("all at once was not measured")
    holds = over[FLUID] <= MOST_MEMORY and over.get(ALL_AT_ONCE, 0.0) >= LEAST_SPIKE
    return Claim.judge_statement(
        f"{case}: peak memory",
        "fluid hardly more than in steady state, all at once 65 where 35 GiB are usual",
        ours,
        holds,
        figure=f"{PAPER}figure 5.19",
        doubt="; ".join(unsure),
        why=f"up to {MOST_MEMORY:g} counts as hardly more, from {LEAST_SPIKE:g} on as a spike",
    )


def judge_sizes(phases: Sequence[KeyCountPhase]) -> list[Claim]:
    """Judge figures 5.15 to 5.17: how bins, keys, and bins of one size change the slowest batch."""
    ordered = sorted(phases, key=lambda one: (one.bins, one.keys))
    fluid, at_once = ([one for one in ordered if one.system == system] for system in (FLUID, ALL_AT_ONCE))
    return [*_judge_bins(fluid), *_judge_keys(at_once)]


def _list_pairs(phases: Sequence[KeyCountPhase]) -> Iterator[tuple[KeyCountPhase, KeyCountPhase, str]]:
    """Pair phases whose bins went the same way, each pair with its doubt."""
    for few, many in combinations(phases, 2):
        if few.back == many.back:
            yield few, many, "; ".join(one.note for one in (few, many) if one.note)


def _judge_keys(at_once: Sequence[KeyCountPhase]) -> Iterator[Claim]:
    name = "more keys in as many bins, all at once"
    claim = "the slowest batch and the duration grow with the state"
    for few, many, doubt in _list_pairs(at_once):
        if few.bins == many.bins and few.keys != many.keys:
            ours = "; ".join(
                f"{one.keys:,} keys: {one.longest_seconds:.1f} s, all in {one.end - one.start:.0f} s"
                for one in (few, many)
            )
            longer = many.end - many.start > few.end - few.start
            grows = many.longest_seconds > few.longest_seconds and longer
            yield Claim.judge_statement(name, claim, ours, grows, figure=f"{PAPER}figure 5.16", doubt=doubt)


def _judge_bins(fluid: Sequence[KeyCountPhase]) -> Iterator[Claim]:
    for few, many, doubt in _list_pairs(fluid):
        if few.bins == many.bins:
            continue
        if few.keys == many.keys:
            name, claim, most, figure = "more bins, as many keys", "lower latency, fluid", 1.0, "figure 5.15"
        elif few.keys * many.bins == many.keys * few.bins:
            name, claim, most = "more bins of the same size", "the same latency, fluid", STALL
            figure = "figure 5.17"
        else:
            continue
        before, after = few.over_steady, many.over_steady
        ours = f"{before:.2f} steady batches with {few.case}, {after:.2f} with {many.case}"
        calm = (
            "neither stalls: there is nothing that bins could shorten" if max(before, after) <= STALL else ""
        )
        yield Claim.judge_statement(
            name, claim, ours, after / before <= most, figure=PAPER + figure, doubt=doubt or calm
        )


def draw_sweeps(rows: Sequence[Row]) -> list[Chart]:
    """Draw the slowest batch against the duration, one point a case (figures 5.15 to 5.17)."""
    if len({row["case"] for row in rows}) < 2:
        return []
    order = (ALL_AT_ONCE, BATCHED, OPTIMIZED, FLUID, PREPARED)
    mine = [row for row in rows if row["system"] in order]
    mine.sort(key=lambda row: (order.index(row["system"]), row["duration_s"]))
    series = Chart.group_rows(mine, lambda row: row["duration_s"], lambda row: row["max_batch_ms"] / 1000)
    title, x = "state sizes and bins (figures 5.15 to 5.17)", "duration of the migration, s"
    return [Chart(title, x, "slowest batch, s", series, points=True, logarithmic="xy")]


def draw_memory(phases: Sequence[KeyCountPhase]) -> list[Chart]:
    """Draw the resident memory of the first case around each migration (figure 5.19)."""
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


def judge_loads(loads: Loads, usual: int, trigger_seconds: float) -> list[Claim]:
    """Judge how each line grows with the load, and the gain of bin by bin at all loads but the usual one."""
    claims = [_judge_line(loads, system, trigger_seconds) for system in SERIES if find_slowest(loads, system)]
    for rate, phases in sorted(loads.items()):
        if rate != usual:
            here = [replace(phase, case=f"{phase.case}, {rate:,} records/s") for phase in phases]
            rows = [phase.make_row() for phase in here]
            claims += judge_gains(rows, {}, collect_doubts(here), AT_LOADS)
    return add_conditions(f"{KEY_COUNT_CONDITIONS}; batches every {trigger_seconds:g} s", claims)


def draw_loads(loads: Loads) -> list[Chart]:
    """Draw the slowest batch by load, a line for each strategy and one for batches while nothing moved."""
    if len(loads) < 2:
        return []
    found = [(system, find_slowest(loads, system)) for system in SERIES]
    series = [(system, [float(rate) for rate in by], list(by.values())) for system, by in found if by]
    title, x = "latency over the offered load (figure 5.18)", "records offered a second"
    return [Chart(title, x, "slowest batch, s", series, points=True, logarithmic="xy")]


def find_slowest(loads: Loads, system: str) -> dict[int, float]:
    """Return the seconds of the slowest batch by load; STILL means batches while nothing moved."""
    found = {}
    for rate in sorted(loads):
        mine = [phase for phase in loads[rate] if system in (STILL, phase.system)]
        shown = [one for phase in mine for one in (phase.steady if system == STILL else phase.batches)]
        if shown:
            found[rate] = max(batch.seconds for batch in shown)
    return found


def _judge_line(loads: Loads, system: str, trigger_seconds: float) -> Claim:
    """Judge one line; loads at which usual batches outlast the trigger are shown and not judged."""
    by_rate, still = find_slowest(loads, system), find_slowest(loads, STILL)
    usual = {rate: max(phase.steady_seconds for phase in loads[rate]) for rate in by_rate}
    keeps_up = [rate for rate in by_rate if usual[rate] <= trigger_seconds]
    ours = "slowest batch " + ", ".join(
        f"{seconds:.2f} s at {rate:,}/s{'' if rate in keeps_up else ' (saturated)'}"
        for rate, seconds in by_rate.items()
    )
    beside = None if system == STILL else f"{STILL}: {', '.join(f'{one:.2f} s' for one in still.values())}"
    doubt, holds, why = _find_doubt(loads, system), False, ""
    if not doubt and len(keeps_up) < 2:
        doubt = "fewer than two loads were measured that it keeps up with"
    if not doubt:
        judged, unmoved = ([line[rate] for rate in keeps_up] for line in (by_rate, still))
        growth = max(judged[1:]) / judged[0]
        holds, why = (
            growth <= STALL,
            f"at most {growth:.2f} times that of the least load; {STALL:g} counts as hardly",
        )
        if not holds and max(unmoved[1:]) / unmoved[0] <= STALL and all(map(le, judged, unmoved)):
            # what is below the scatter of batches that nothing disturbs does not grow with the load
            holds, why = True, f"nowhere slower than batches while {STILL}"
    more: dict[str, Any] = {"figure": AT_LOADS.figure, "doubt": doubt, "why": why, "baseline": beside}
    name = f"{system}: latency over the offered load"
    return Claim.judge_statement(name, LOAD_CLAIM, ours, holds, **more)


def _find_doubt(loads: Loads, system: str) -> str:
    """Tell which migrations did not move all bins."""
    notes = [
        f"at {rate:,}/s {phase.note}"
        for rate, phases in sorted(loads.items())
        for phase in phases
        if phase.system == system and phase.note
    ]
    return " ".join(notes).strip().removesuffix(";")
