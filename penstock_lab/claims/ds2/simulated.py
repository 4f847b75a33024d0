"""DS2, figures 1, 6, 7 and 8, table 4 and section 4.2.3 in the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.simulate.comparison import Comparison
from penstock.simulate.virtual import READ
from penstock_lab.claims.claim import Chart, Claim, Judged, Series, Verdict, add_conditions
from penstock_lab.experiments.measurement import Measurement, Row
from penstock_lab.experiments.simulated import CHOSEN, COUNTS, SIMULATED, choose_seconds, round_values

FITTED = "simulated; capacities are tables fitted to the paper's decisions, so only the stepping is tested"
HELD = (
    "simulated; capacities are tables fitted to the paper's decisions, so this shows what too small a size "
    "does, not that the least one is found"
)
SKEWED = "simulated: of 20 instances of Count one gets this share beside its part of the rest"
WITHOUT_SKEW = {"flatmap": 10, "count": COUNTS}
TABLE_4: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "q1": {8: (12, 16), 12: (16,), 16: (), 20: (16,), 24: (16,), 28: (16,)},
    "q2": {8: (11, 13, 14), 12: (14,), 16: (12, 14), 20: (13, 14), 24: (14,), 28: (14,)},
    "q3": {8: (16, 20), 12: (18, 20), 16: (20,), 20: (), 24: (20,), 28: (20,)},
    "q5": {8: (14, 15, 16), 12: (16,), 16: (), 20: (14, 16), 24: (14, 16), 28: (13, 16)},
    "q8": {8: (10,), 12: (10,), 16: (8, 10), 20: (8, 10), 24: (8, 10), 28: (8, 10)},
    "q11": {8: (12, 22, 28), 12: (22, 28), 16: (26, 28), 20: (28,), 24: (28,), 28: ()},
}
"""Query → initial parallelism → sizes decided in turn; none where the first one fits."""
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
    claims = [
        Claim.judge_steps("steps of DS2", 1, ds2["steps"], baseline=f"dhalion: {dhalion['steps']}"),
        *(
            judge_least(f"instances of {name}, DS2", published, ours[name], f"dhalion: {sizes[name]}")
            for name, published in WITHOUT_SKEW.items()
        ),
        Claim.judge_figure(
            "steps of Dhalion, the baseline", 6, dhalion["steps"], tolerance=0.2, why=ONE_STEP
        ),
        _judge_dhalion_time(ds2["actions"], dhalion["actions"]),
        _judge_dhalion_size(sizes),
    ]
    return Judged(add_conditions(SIMULATED, claims), _draw_steps("figure 6", "figure 1", measured))


def judge_least(result: str, published: int, held: int, baseline: str) -> Claim:
    """Judge a size whose published value is the least that keeps up: fewer are no success."""
    found = Claim.judge_figure(result, published, held, tolerance=0, baseline=baseline)
    if found.verdict is Verdict.BETTER:
        return replace(found, verdict=Verdict.WORSE, why="fewer than the least that keep up")
    return found


def _judge_dhalion_time(ds2: Sequence[Mapping[str, Any]], dhalion: Sequence[Mapping[str, Any]]) -> Claim:
    ours, theirs = (max((one["ended_at"] for one in actions), default=0.0) for actions in (ds2, dhalion))
    said, why = f"{theirs:.0f} s, DS2 {ours:.0f} s", f"{FAR_LONGER} times counts as far"
    name, claim = "Dhalion takes far longer to its last size", "2,000 s, DS2 60 s"
    return Claim.judge_statement(name, claim, said, theirs >= FAR_LONGER * ours, why=why)


def _judge_dhalion_size(sizes: Mapping[str, int]) -> Claim:
    ours = f"{sizes['flatmap']} and {sizes['count']}"
    holds = sizes["flatmap"] > 10 and sizes["count"] > 20
    why = "" if holds else "the baseline holds no more than it needs here, where capacities are exact"
    return Claim.judge_statement("Dhalion holds more than it needs", "22 and 30", ours, holds, why=why)


def judge_two_phases(measured: Measurement) -> Judged:
    """Judge figure 7: the word count on Flink when the rate halves."""
    (ds2,) = measured.rows
    early = sum(one["at"] < RATE_HALVES_SECONDS for one in ds2["actions"])
    why = "sizes before the last of a phase differ, since the simulated capacity is not Flink's"
    claims = [
        Claim.judge_steps("steps in the first phase, up", 2, early),
        Claim.judge_steps("steps in the second phase, down", 2, len(ds2["actions"]) - early, why=why),
        *_judge_phase_sizes(ds2["actions"], early),
    ]
    return Judged(add_conditions(SIMULATED, claims), _draw_steps("figure 7", "figure 7", measured))


def _judge_phase_sizes(actions: Sequence[Mapping[str, Any]], early: int) -> list[Claim]:
    """Judge the size at the end of the first phase, to which capacities are fitted; show the second's."""
    first, second = (
        " and ".join(str(part[-1]["to"][name]) for name in ("flatmap", "count")) if part else "no step"
        for part in (actions[:early], actions[early:])
    )
    why = "capacities are fitted to the first phase, and those of Flink change with more than the instances"
    return [
        Claim.judge_statement(
            "FlatMap and Count after the first phase", "19 and 11", first, first == "19 and 11"
        ),
        Claim.show_beside("FlatMap and Count after the second phase", "7 and 5", second, why),
    ]


def judge_convergence(measured: Measurement) -> Judged:
    """Judge table 4: Nexmark queries from six initial sizes."""
    note = "The part convergence-cluster steps the same queries on a real cluster, between sizes that it has."
    return Judged(add_conditions(FITTED, map(judge_steps_from, measured.rows)), notes=[note])


def judge_steps_from(row: Row) -> Claim:
    """Judge one query from one size: the published end, in no more steps."""
    query, initial, ours = row["case"], row["initial"], row["decided"]
    published = TABLE_4[query][initial]
    same_end = (ours or (initial,))[-1] == (published or (initial,))[-1]
    holds = same_end and len(ours) <= len(published)
    return Claim.judge_statement(
        f"{query.upper()} from {initial}", _tell_steps(published), _tell_steps(ours), holds
    )


def _tell_steps(sizes: tuple[int, ...]) -> str:
    return " → ".join(map(str, sizes)) or "no step"


def judge_accuracy(measured: Measurement) -> Judged:
    """Judge figure 8: the chosen size keeps up, one smaller does not, one larger brings little."""
    by_query = {
        query: [row for row in measured.rows if row["case"] == query]
        for query in dict.fromkeys(row["case"] for row in measured.rows)
    }
    sizes = ["-1", "chosen", "+1"]
    read, late = (
        [(query.upper(), sizes, [row[key] for row in rows]) for query, rows in by_query.items()]
        for key in ("share_read", "latency_s")
    )
    rates, times = "share of the offered rate", "median latency, s"
    charts = [
        Chart("figure 8: what the source reads", "instances", rates, read, bars=True),
        Chart("figure 8: latency", "instances", times, late, bars=True, logarithmic="y"),
    ]
    claims = [judge_sizes_beside(query, rows) for query, rows in by_query.items()]
    return Judged(add_conditions(HELD, claims), charts)


def judge_sizes_beside(query: str, rows: Sequence[Row]) -> Claim:
    """Judge that the chosen size of a query is the least that keeps up."""
    keeps = [row["share_read"] >= KEEPS_UP for row in rows]
    ours = ", ".join(
        f"{row['size']}: {'keeps up' if kept else 'falls behind'}, {_tell_latency(row['latency_s'])}"
        for row, kept in zip(rows, keeps, strict=True)
    )
    claim, why = f"{CHOSEN[query]} is the least that keeps up", "with the median latency of the last minute"
    return Claim.judge_statement(query.upper(), claim, ours, keeps == [False, True, True], why=why)


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
    return [
        Claim.judge_statement(f"{name}: final size", claim, ours, holds),
        Claim.judge_statement(f"{name}: converges", "after two steps", said, steps <= 2),
    ]


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
