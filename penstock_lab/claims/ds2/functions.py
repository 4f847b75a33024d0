"""DS2, figures 1 and 6 and table 4 on a real cluster: beside Dhalion, and from two sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock_lab.claims.claim import Chart, Claim, Judged, add_conditions
from penstock_lab.experiments.measurement import Measurement, Row
from penstock_lab.experiments.nexmark import (
    INITIAL_EXECUTORS,
    SLOTS_OF_SERVICE,
    Convergence,
    bound_executors,
    group_by_query,
    measure_spread,
)
from penstock_lab.experiments.word_count.functions import OPTIMAL, Sample

DS2, DHALION = "ds2", "dhalion"
PACED = "real cluster, 30 sentences a second, paced functions with instances of their own; published: Heron"
PUBLISHED: dict[str, Any] = {
    "dhalion_steps": 6,
    "dhalion_split_instances": 22,
    "dhalion_count_instances": 30,
    "dhalion_seconds_to_converge": 2000,
    "ds2_steps": 1,
    "ds2_split_instances": 10,
    "ds2_count_instances": 20,
    "ds2_seconds_to_converge": 60,
}
CONVERGING = (
    "real cluster of 5 executors with 2 slots, events with a service time; published: 8 to 28 instances"
)
FIGURE, TABLE = "DS2, figures 1 and 6", "DS2, table 4"
MOST_STEPS = 3
"""The most in the paper's 36 runs."""


def judge(measured: Measurement) -> Judged:
    """Judge both policies from the same few instances."""
    rows = {row["system"]: row for row in measured.rows}
    claims = [*judge_systems(rows.get(DS2), rows.get(DHALION)), *judge_targets(rows.get(DS2))]
    return Judged(add_conditions(PACED, claims), draw_courses(measured.found), published=PUBLISHED)


def judge_targets(ours: Row | None) -> list[Claim]:
    """Judge DS2's steps and instances."""
    off = sum(abs(ours["final"][name] - best) for name, best in OPTIMAL.items()) if ours else None
    return [
        Claim.judge_target("steps of ds2", "== 1", ours["steps"] if ours else None),
        Claim.judge_target("instances of ds2 off the right answer", "== 0", off),
    ]


def judge_systems(ds2: Row | None, dhalion: Row | None) -> list[Claim]:
    """Judge DS2 with Dhalion as its baseline, and what is published of Dhalion."""
    found = [] if ds2 is None else _judge_ds2(ds2, dhalion)
    return found if dhalion is None else [*found, *_judge_dhalion(ds2, dhalion)]


def _judge_ds2(row: Row, other: Row | None) -> list[Claim]:
    steps, sizes, waited = (
        f"dhalion: {tell(other)}" if other else None
        for tell in (lambda one: one["steps"], _tell_sizes, _tell_waiting)
    )
    exact, claim = row["final"] == row["optimal"], "10 and 20, the least that keep up"
    return [
        Claim.judge_steps("steps of DS2", 1, row["steps"], figure=FIGURE, baseline=steps),
        Claim.judge_statement(
            "instances of split and count, DS2",
            claim,
            _tell_sizes(row),
            exact,
            figure=FIGURE,
            baseline=sizes,
        ),
        Claim.show_beside(
            "records that waited, DS2", None, _tell_waiting(row), "the paper has none", baseline=waited
        ),
    ]


def _judge_dhalion(ds2: Row | None, row: Row) -> list[Claim]:
    more = sum(row["final"].values()) > sum(row["optimal"].values())
    ours, theirs = (one["seconds_to_converge"] if one else None for one in (ds2, row))
    ratio = theirs / ours if ours and theirs else None
    why = "both wait for the long batches of the first sizes, which take most of DS2's time"
    name, taken = "seconds to the last size, Dhalion's over DS2's", str(row["steps"])
    held = "Dhalion holds more than it needs"
    return [
        Claim.judge_statement(
            "Dhalion takes more than one step", "6", taken, row["steps"] > 1, figure=FIGURE
        ),
        Claim.judge_statement(held, "22 and 30", _tell_sizes(row), more, figure=FIGURE),
        Claim.judge_figure(name, 2000 / 60, ratio, lower_is_better=False, figure=FIGURE, why=why),
    ]


def _tell_sizes(row: Row) -> str:
    return " and ".join(str(row["final"][name]) for name in ("split", "count"))


def _tell_waiting(row: Row) -> str:
    return f"{row['backlog_record_seconds']:,} record-seconds"


def draw_courses(courses: Mapping[str, Sequence[Sample]]) -> list[Chart]:
    """Draw the instances of each function over time (figure 6), and the records that wait (figure 1)."""
    if not courses:
        return []
    held, waiting = [], []
    for system, samples in courses.items():
        at = [round(one.at - samples[0].at, 1) for one in samples]
        held += [
            (f"{system}, {name}", at, [float(one.sizes[name]) for one in samples])
            for name in (samples[0].sizes if samples else ())
        ]
        waiting.append((system, at, [one.waiting for one in samples]))
    return [
        Chart("instances on a cluster (figure 6)", "seconds", "instances", held, steps=True),
        Chart("records that wait (figure 1)", "seconds", "records", waiting),
    ]


def judge_convergence(measured: Measurement) -> Judged:
    """Judge six queries from the fewest executors and from all."""
    found: Sequence[Convergence] = measured.found
    grouped = group_by_query(found)
    apart = max((measure_spread(mine) for mine in grouped.values()), default=None)
    steps = max((len(one.decided) for one in found), default=None)
    claims = [
        *(judge_query(query, mine) for query, mine in grouped.items()),
        Claim.judge_target("most steps of a run", f"<= {MOST_STEPS}", steps),
        Claim.judge_target("executors between the final sizes of a query, the most", "<= 1", apart),
    ]
    published = {"ds2_most_steps": MOST_STEPS}
    return Judged(add_conditions(CONVERGING, claims), [draw_steps(found)], published=published)


def judge_query(query: int, mine: Sequence[Convergence]) -> Claim:
    """Judge one query: few steps, and from every start about the size that its service needs."""
    steps, (least, most) = max(len(one.decided) for one in mine), bound_executors(query)
    ours = "; ".join(
        f"from {one.initial}: {' → '.join(map(str, one.decided)) or f'stays at {one.final}'}" for one in mine
    )
    right, need = all(least <= one.final <= most for one in mine), SLOTS_OF_SERVICE[query]
    return Claim.judge_statement(
        f"Q{query} on the cluster",
        "the same size from every start, in at most three steps",
        ours,
        steps <= MOST_STEPS and measure_spread(mine) <= 1 and right,
        figure=TABLE,
        doubt="it could not be measured from the other start" if len(mine) < len(INITIAL_EXECUTORS) else "",
        why=f"sizes in executors; {least} to {most} are right for {need:g} slots of service",
    )


def draw_steps(found: Sequence[Convergence]) -> Chart:
    """Draw sizes by step, one line a run."""
    series = [
        (
            f"Q{one.query} from {one.initial}",
            [float(step) for step in range(len(one.decided) + 1)],
            [float(one.initial), *map(float, one.decided)],
        )
        for one in found
    ]
    return Chart("sizes step by step (table 4)", "step", "executors", series, steps=True, points=True)
