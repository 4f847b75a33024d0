"""DS2, figures 1, 6, 7 and 8, table 4 and section 4.2.3 in the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.simulate.comparison import Comparison
from penstock.simulate.virtual import READ
from penstock_lab.claims.claim import Chart, Claim, Judged, Series, Verdict, add_conditions
from penstock_lab.experiments.measurement import Measurement, Row
from penstock_lab.experiments.simulated import COUNTS, SIMULATED, choose_seconds, round_values

FIGURE_1_6, FIGURE_7, FIGURE_8 = "DS2, figures 1 and 6", "DS2, figure 7", "DS2, figure 8"
TABLE_4, SKEW = "DS2, table 4", "DS2, section 4.2.3"
UNFITTED = "simulated; one operator on curves of the universal scalability law that are fitted to nothing"
SKEWED = "simulated: of 20 instances of Count one gets this share beside its part of the rest"
GIVEN_SIZES = (
    "the words of a sentence are chosen such that 10 and 20 are the least, so a success shows little"
)
GIVEN_CURVES = "the curves are fitted to these very steps and sizes, so a success shows little"
WITHOUT_SKEW = {"flatmap": 10, "count": COUNTS}
MOST_STEPS = 3
ONE_STEP = "within one step counts as the same"
FAR_LONGER = 10
KEEPS_UP = 0.999
"""Share of what is offered that a size must read."""
RATE_HALVES_SECONDS = 800
"""Of the scenario flink-two-phases, as in the paper."""


def judge_heron(measured: Measurement) -> Judged:
    """Judge figures 1 and 6: one step against Dhalion's six."""
    ds2, dhalion = measured.rows
    sizes, ours = dhalion["final_parallelism"], ds2["final_parallelism"]
    beside, steps = f"dhalion: {dhalion['steps']}", "steps of Dhalion, the baseline"
    given = [
        Claim.judge_steps("steps of DS2", 1, ds2["steps"], figure=FIGURE_1_6, baseline=beside),
        *(
            judge_least(f"instances of {name}, DS2", published, ours[name], f"dhalion: {sizes[name]}")
            for name, published in WITHOUT_SKEW.items()
        ),
    ]
    claims = [
        *(claim.illustrate(GIVEN_SIZES) for claim in given),
        Claim.judge_figure(
            steps, 6, dhalion["steps"], tolerance=0.2, lower_is_better=False, figure=FIGURE_1_6, why=ONE_STEP
        ),
        _judge_dhalion_time(ds2["actions"], dhalion["actions"]),
        _judge_dhalion_size(sizes),
    ]
    return Judged(add_conditions(SIMULATED, claims), _draw_steps("figure 6", "figure 1", measured))


def judge_least(result: str, published: int, held: int, baseline: str) -> Claim:
    """Judge a size whose published value is the least that keeps up: fewer are no success."""
    found = Claim.judge_figure(result, published, held, tolerance=0, figure=FIGURE_1_6, baseline=baseline)
    if found.verdict is Verdict.BETTER:
        return replace(found, verdict=Verdict.WORSE, why="fewer than the least that keep up")
    return found


def _judge_dhalion_time(ds2: Sequence[Mapping[str, Any]], dhalion: Sequence[Mapping[str, Any]]) -> Claim:
    ours, theirs = (max((one["ended_at"] for one in actions), default=0.0) for actions in (ds2, dhalion))
    said, why = f"{theirs:.0f} s, DS2 {ours:.0f} s", f"{FAR_LONGER} times counts as far"
    name, claim = "Dhalion takes far longer to its last size", "2,000 s, DS2 60 s"
    holds = theirs >= FAR_LONGER * ours > 0
    return Claim.judge_statement(name, claim, said, holds, figure=FIGURE_1_6, why=why)


def _judge_dhalion_size(sizes: Mapping[str, int]) -> Claim:
    ours = f"{sizes['flatmap']} and {sizes['count']}"
    holds = sizes["flatmap"] > 10 and sizes["count"] > 20
    why = "" if holds else "the baseline holds no more than it needs here, where capacities are exact"
    name = "Dhalion holds more than it needs"
    return Claim.judge_statement(name, "22 and 30", ours, holds, figure=FIGURE_1_6, why=why)


def judge_two_phases(measured: Measurement) -> Judged:
    """Judge figure 7: the word count on Flink when the rate halves."""
    (ds2,), comparison = measured.rows, measured.found
    early = sum(one["at"] < RATE_HALVES_SECONDS for one in ds2["actions"])
    why = "sizes before the last of a phase differ, since the simulated capacity is not Flink's"
    up = Claim.judge_steps("steps in the first phase, up", 2, early, figure=FIGURE_7)
    claims = [
        up.illustrate(GIVEN_CURVES),
        Claim.judge_steps(
            "steps in the second phase, down", 2, len(ds2["actions"]) - early, figure=FIGURE_7, why=why
        ),
        *judge_phase_sizes(ds2["actions"], early, tuple(comparison.oracle[-1, -2:].tolist())),
    ]
    return Judged(add_conditions(SIMULATED, claims), _draw_steps("figure 7", "figure 7", measured))


def judge_phase_sizes(
    actions: Sequence[Mapping[str, Any]], early: int, least: tuple[int, ...]
) -> list[Claim]:
    """Judge the size at the end of each phase; `least` are FlatMap and Count that keep up in the second."""
    first, second = (
        tuple(int(part[-1]["to"][name]) for name in ("flatmap", "count")) if part else ()
        for part in (actions[:early], actions[early:])
    )
    phases = {
        "first": ("19 and 11", first, (19, 11), ""),
        "second": ("7 and 5, the least", second, least, f"the least is {_tell_sizes(least)} here"),
    }
    found = [
        Claim.judge_statement(
            f"FlatMap and Count after the {which} phase", claim, _tell_sizes(sizes), sizes == right,
            figure=FIGURE_7, why=why,
        )
        for which, (claim, sizes, right, why) in phases.items()
    ]  # fmt: skip
    return [found[0].illustrate(GIVEN_CURVES), found[1]]


def _tell_sizes(sizes: Sequence[int]) -> str:
    return " and ".join(map(str, sizes)) or "no step"


def judge_convergence(measured: Measurement) -> Judged:
    """Judge table 4: from six initial sizes to the least one, in at most three steps."""
    note = "The part convergence-cluster sizes Nexmark queries on a real cluster, between sizes that it has."
    claims = [judge_curve(case, rows) for case, rows in _group_rows(measured.rows).items()]
    return Judged(add_conditions(UNFITTED, claims), notes=[note])


def judge_curve(case: str, rows: Sequence[Row]) -> Claim:
    """Judge one curve: the least size that keeps up from every start, in at most three steps."""
    least, steps = rows[0]["least"], max(len(row["decided"]) for row in rows)
    ours = f"at most {steps} steps; least {least}, ends with " + ", ".join(
        f"{row['final']} from {row['initial']}" for row in rows
    )
    holds = steps <= MOST_STEPS and all(row["final"] == least for row in rows)
    claim = "the same size from every start, the least that keeps up, in at most three steps"
    return Claim.judge_statement(case, claim, ours, holds, figure=TABLE_4)


def _group_rows(rows: Sequence[Row]) -> dict[str, list[Row]]:
    cases = dict.fromkeys(row["case"] for row in rows)
    return {case: [row for row in rows if row["case"] == case] for case in cases}


def judge_accuracy(measured: Measurement) -> Judged:
    """Judge figure 8: the size that DS2 chooses keeps up, one smaller does not."""
    by_case, sizes = _group_rows(measured.rows), ["-1", "chosen", "+1"]
    read, late = (
        [(case, sizes, [row[key] for row in rows]) for case, rows in by_case.items()]
        for key in ("share_read", "latency_s")
    )
    rates, times = "share of the offered rate", "median latency, s"
    charts = [
        Chart("figure 8: what the source reads", "instances", rates, read, bars=True),
        Chart("figure 8: latency", "instances", times, late, bars=True, logarithmic="y"),
    ]
    claims = [judge_sizes_beside(case, rows) for case, rows in by_case.items()]
    return Judged(add_conditions(UNFITTED, claims), charts)


def judge_sizes_beside(case: str, rows: Sequence[Row]) -> Claim:
    """Judge that the size that DS2 chose is the least that keeps up."""
    keeps = [row["share_read"] >= KEEPS_UP for row in rows]
    ours = f"chose {rows[0]['chosen']}; " + ", ".join(
        f"{row['size']}: {'keeps up' if kept else 'falls behind'}, {_tell_latency(row['latency_s'])}"
        for row, kept in zip(rows, keeps, strict=True)
    )
    claim, why = "the chosen size is the least that keeps up", "with the median latency of the last minute"
    holds = keeps == [False, True, True]
    return Claim.judge_statement(case, claim, ours, holds, figure=FIGURE_8, why=why)


def _tell_latency(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 0.001 else "below 1 ms"


def judge_skew(measured: Measurement) -> Judged:
    """Judge that DS2 stays at the size that fits without skew, and does not oscillate."""
    rows = measured.rows
    bars = [("ds2", [row["case"] for row in rows], [row["read"] for row in rows])]
    chart = Chart("throughput at the size that DS2 chooses", "skew", "share of the offered rate", bars, True)
    note = "The part hot-keys has what diagnosis says of a straggler, and what moving bins brings."
    claims = [claim for row in rows for claim in judge_skewed(row)]
    return Judged(add_conditions(SKEWED, claims), [chart], [note])


def judge_skewed(row: Row) -> list[Claim]:
    """Judge final size and steps at one skew."""
    final, read, steps = row["final"], row["read"], row["steps"]
    name, claim = f"skew of {row['case']}", "the size that fits without skew, 10 and 20; it does not keep up"
    ours = f"{final['flatmap']} and {final['count']}, reads {read:.0%} of what is offered"
    holds = final == WITHOUT_SKEW and read < 0.99
    said = f"after {steps} steps" if steps != 1 else "after one step"
    found = [
        Claim.judge_statement(f"{name}: final size", claim, ours, holds, figure=SKEW),
        Claim.judge_statement(f"{name}: converges", "after two steps", said, 0 < steps <= 2, figure=SKEW),
    ]
    return [claim.illustrate(GIVEN_SIZES) for claim in found]


def _draw_steps(figure: str, read_figure: str, measured: Measurement) -> list[Chart]:
    """Draw parallelism over time by operator and policy, and what is read of what is offered."""
    comparison: Comparison = measured.found
    seconds = choose_seconds(comparison)
    read = [(run.policy, seconds, round_values(run.seen[seconds, READ])) for run, _ in comparison.runs]
    offered = round_values(comparison.experiment.offered[seconds].sum(axis=1))
    rates = [*read, ("offered", seconds, offered)]
    end = float(comparison.experiment.seconds)
    sizes = [line for row in measured.rows for line in _list_sizes(row, end)]
    return [
        Chart(f"{figure}: parallelism over time", "seconds", "instances", sizes, steps=True),
        Chart(f"{read_figure}: what the source reads", "seconds", "records a second", rates),
    ]


def _list_sizes(row: Row, end: float) -> list[Series]:
    """Return the sizes of each operator that was scaled: a source never is."""
    lines: list[Series] = []
    for name in row["final_parallelism"]:
        changes = [action for action in row["actions"] if name in action["to"]]
        sizes = [action["to"][name] for action in changes]
        first = changes[0]["from"].get(name, 0) if changes else 0
        if changes and {*sizes} != {first}:
            times = [0.0, *(action["ended_at"] for action in changes), end]
            lines.append((f"{row['policy']}, {name}", times, [float(n) for n in (first, *sizes, sizes[-1])]))
    return lines
