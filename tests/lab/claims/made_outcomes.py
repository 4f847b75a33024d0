"""For each part of the report an outcome that succeeds, and outcomes in which each of its verdicts fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from penstock.simulate.virtual import LATENCY, QUEUED, READ
from penstock_lab.claims.autrascale import TABLE_4 as COSTS
from penstock_lab.claims.autrascale import TABLES_2_3
from penstock_lab.claims.snailtrail import TABLE_3_3
from penstock_lab.experiments.batches import SlotsSeen
from penstock_lab.experiments.days.trials import summarise_days
from penstock_lab.experiments.diagnosing import MadeCause
from penstock_lab.experiments.faults.rows import summarise_matrix
from penstock_lab.experiments.field.rows import summarise_field
from penstock_lab.experiments.hot_keys import Skewed
from penstock_lab.experiments.measurement import Measurement, Row
from penstock_lab.experiments.moving.key_count import LOADED, Moves, summarise
from penstock_lab.experiments.moving.queries import QueryPhase
from penstock_lab.experiments.nexmark import Convergence
from penstock_lab.experiments.policies import AHEAD, LEARNED, NOISES, PLAIN, TRAFFIC, Compared
from penstock_lab.experiments.policies import summarise as summarise_policies
from penstock_lab.experiments.simulated import LATENCY_SCENARIOS
from penstock_lab.experiments.sizing.trials import summarise as summarise_sizes
from penstock_lab.experiments.word_count.query import (
    DS2,
    HIGH_RATE,
    OVER,
    TRIGGER_SECONDS,
    TWO_PHASE,
    UNDER,
    WordCounts,
)
from tests.lab.claims.made_days import a_case_of_rows
from tests.lab.claims.test_faults import a_row as fault_row
from tests.lab.claims.test_field import a_row as field_row
from tests.lab.claims.test_field import day_rows
from tests.lab.made_up import a_phase, batches


@dataclass(frozen=True)
class Made:
    """An outcome that succeeds in everything, and outcomes that together fail in everything."""

    good: Measurement
    bad: Sequence[Measurement]


def of_rows(good: Sequence[Row], *changes: Row, found: object = None) -> Made:
    """Make each bad outcome by one change to all rows."""
    return Made(
        Measurement(list(good), found=found),
        [Measurement([{**row, **change} for row in good], found=found) for change in changes],
    )


def of_summary(good: dict[str, float], bad: dict[str, float], rows: Sequence[Row] = ()) -> Made:
    return Made(Measurement(list(rows), good), [Measurement(list(rows), {**good, **bad})])


# simulated


def compared(
    waits: Sequence[float] = (0,), policies: Sequence[str] = (), oracle: Sequence[int] = ()
) -> object:
    """Stand in for runs side by side, of as many seconds as images waited."""
    seconds = len(waits)
    experiment = SimpleNamespace(seconds=seconds, scaled=[0], offered=np.ones((seconds, 1)))
    seen = np.zeros((seconds, 1 + max(QUEUED, LATENCY, READ)))
    seen[:, QUEUED] = waits
    held = np.ones((seconds, 1))
    runs = [
        (SimpleNamespace(policy=name, seen=seen, held=held, experiment=experiment), None) for name in policies
    ]
    return SimpleNamespace(experiment=experiment, runs=runs, oracle=np.array([[1, *oracle]]))


def sized(policy: str, *steps: tuple[float, int, int]) -> Row:
    actions = [
        {"at": at, "ended_at": at + 30, "from": {}, "to": {"flatmap": flatmap, "count": count}}
        for at, flatmap, count in steps
    ]
    final = actions[-1]["to"] if actions else {"flatmap": 1, "count": 1}
    return {"policy": policy, "steps": len(steps), "final_parallelism": final, "actions": actions}


def make_heron() -> Made:
    good = [sized("ds2", (60, 10, 20)), sized("dhalion", *[(400 * n, 22, 30) for n in range(1, 7)])]
    bad = [sized("ds2", (60, 9, 20), (120, 9, 21)), sized("dhalion", (60, 10, 20))]
    found = compared(policies=("ds2", "dhalion"))
    return Made(Measurement(good, found=found), [Measurement(bad, found=found)])


def make_two_phases() -> Made:
    found = compared(policies=("ds2",), oracle=(8, 5))
    good = sized("ds2", (60, 17, 9), (120, 19, 11), (860, 9, 6), (920, 8, 5))
    bad = sized("ds2", (60, 12, 7), (120, 17, 9), (180, 18, 11), *[(860 + n, 9 - n, 5) for n in range(4)])
    return Made(Measurement([good], found=found), [Measurement([bad], found=found)])


CURVE = {"case": "curve 1", "initial": 8, "decided": (21, 24), "final": 24, "least": 24}
SIZES = [
    {"case": "curve 1", "chosen": 24, "size": size, "share_read": read, "latency_s": 1.0}
    for size, read in ((23, 0.96), (24, 1.0), (25, 1.0))
]
SKEWED = {"case": "20%", "final": {"flatmap": 10, "count": 20}, "read": 0.3, "steps": 1}


def make_images(simulated: bool) -> Made:
    figures = {"threshold": (20.0, 3.0), "ds2": (2.0, 4.0), "queueing": (1.0, 5.0)}

    def rows(swapped: bool) -> list[Row]:
        return [
            {"system": name, "mean_response_s": 1 / late if swapped else late, "peak_response_s": 9.0,
             "mean_instances": 1 / count if swapped else count, "images": 9, "recognised": 9}
            for name, (late, count) in figures.items()
        ]  # fmt: skip

    short, long = ([0.0] + [400.0] * seconds + [0.0] for seconds in (60, 700))
    seen = [compared(waits, tuple(figures)) if simulated else {} for waits in (short, long)]
    return Made(Measurement(rows(False), found=seen[0]), [Measurement(rows(True), found=seen[1])])


def make_latency_targets() -> Made:
    good = [
        {"case": name, "target_s": 0.3, "instances": TABLES_2_3[name].instances, "latency_s": 0.2,
         "drs_instances": 180, "drs_latency_s": 0.2, "model_trials": 2}
        for name in LATENCY_SCENARIOS
    ]  # fmt: skip
    return of_rows(good, {"instances": 190, "latency_s": 0.4})


def make_other_rates() -> Made:
    def rows(**changes: float) -> list[Row]:
        values = {"instances": 20, "latency_s": 0.1, "target_s": 0.2, "tried_at_first_rate": 6,
                  "tried_at_second_rate": 2, "transferred_trials": 1}  # fmt: skip
        ours = {"system": "autrascale", **values, **changes}
        return [
            {"case": name, **row}
            for name, less in (("autrascale-q5", -5), ("autrascale-q11", 0))
            for row in (ours, {**ours, "system": "ds2", "latency_s": 0.1, "instances": 20 - less})
        ]

    bad = rows(tried_at_second_rate=7, latency_s=0.3)
    for row in bad:
        row["instances"] += 20 * (row["system"] == "autrascale")
    return Made(Measurement(rows(), found=NO_RUNS), [Measurement(bad, found=NO_RUNS)])


NO_RUNS = {name: compared([0.0] * 20, ("autrascale", "ds2")) for name in ("autrascale-q5", "autrascale-q11")}


# speed


def make_costs() -> Made:
    def rows(factor: float) -> list[Row]:
        return [
            {"operators": count, **{key: factor * COSTS[key][place] for key in COSTS}}
            for place, count in enumerate((2, 4, 6, 8, 10))
        ]

    return Made(Measurement(rows(0.5)), [Measurement(rows(2.0))])


def make_tables() -> Made:
    def measured(factor: float, **figures: float) -> Measurement:
        rows = [
            {"window_s": length, "latency_s": factor * seconds, "events_per_s": 3e4 * length / seconds}
            for length, seconds in TABLE_3_3.items()
        ]
        good = {"spark_events_per_s": 6e6, "kernel_events_per_s_longest": 3e7,
                "worst_latency_of_window": 0.05, "growth_exponent": 1.0}  # fmt: skip
        return Measurement(rows, {**good, **figures})

    slow = {"spark_events_per_s": 1e6, "kernel_events_per_s_longest": 1e6}
    return Made(measured(0.5), [measured(2.0, worst_latency_of_window=0.2, growth_exponent=1.5, **slow)])


def make_policies() -> Made:
    def measured(learned: Sequence[int], over: float, flips: int, held: float) -> Measurement:
        rows = [
            {
                "case": TRAFFIC,
                "system": AHEAD,
                "over_slot_seconds_ratio": over,
                "under_seconds_ratio": over / 50,
            }
        ]
        for case in LATENCY_SCENARIOS:
            for system, slots in (("autrascale", 50.0), ("drs", held), ("drs-observed", held)):
                late = 0.4 if system == "autrascale" and held < 50 else 0.1
                told = {"final_slots": slots, "final_latency_s": late, "target_s": 0.3}
                rows.append({"case": case, "system": system, **told})
        steps = {(noise, LEARNED): list(learned) for noise in NOISES}
        steps |= {(noise, PLAIN): [5] * len(learned) for noise in NOISES}
        days = {LEARNED: [(flips, flips)], PLAIN: [(1, 1)]}
        found = Compared(rows, steps, days, 2)
        return Measurement(rows, summarise_policies(found), found=found)

    return Made(measured([1] * 10, 0.04, 0, 60.0), [measured([3] * 10, 0.2, 2, 40.0)])


# on a cluster


def run_seen(seconds: float, rate: float, slots: int) -> SimpleNamespace:
    seen = batches(*[seconds] * 8, records=rate * TRIGGER_SECONDS)
    held = (SlotsSeen(0.0, 3), SlotsSeen(15.0, slots))
    return SimpleNamespace(origin=0.0, ended=100.0, batches=seen, slots=held)


def make_word_count() -> Made:
    def measured(bad: bool) -> Measurement:
        rows, runs = {}, {}
        for case in (UNDER, OVER, TWO_PHASE):
            phases = len(case.phases)
            held, steps, last = (15, 4, [3]) if bad else (9, 1, [9])
            rows[case.name, DS2] = {
                "case": case.name, "system": DS2, "steps": steps, "steps_by_phase": [steps] * phases,
                "final_slots": held, "optimal_slots": 9, "slots_by_phase": [held] * (phases - 1) + last,
                "optimal_by_phase": [9] * phases, "slots_per_executor": 3, "slot_seconds": 9,
                "backlog_record_seconds": 9, "prediction_error": 0.5 if bad else 0.1,
            }  # fmt: skip
            runs[case.name, DS2] = run_seen(9.0 if bad else 5.0, case.phases[-1][1], held)
        tried = {HIGH_RATE: {6: (8.0,), 9: (5.0,), 12: (4.0,), 15: (3.0,)}}
        found = WordCounts((UNDER, OVER, TWO_PHASE), runs, rows, tried)
        return Measurement(list(rows.values()), found=found)

    return Made(measured(False), [measured(True)])


def make_functions() -> Made:
    def row(system: str, steps: int, sizes: tuple[int, int], seconds: float) -> Row:
        final = dict(zip(("split", "count"), sizes, strict=True))
        return {"system": system, "steps": steps, "final": final, "optimal": {"split": 10, "count": 20},
                "backlog_record_seconds": 9, "seconds_to_converge": seconds}  # fmt: skip

    good = [row("ds2", 1, (10, 20), 60.0), row("dhalion", 6, (22, 30), 2000.0)]
    bad = [row("ds2", 2, (9, 20), 60.0), row("dhalion", 1, (10, 20), 70.0)]
    return Made(Measurement(good, found={}), [Measurement(bad, found={})])


def make_overhead() -> Made:
    def figures(throughput: float, latency: float) -> dict[str, float]:
        ratios = {"throughput_ratio": throughput, "latency_ratio": latency}
        spans = {"_low": -0.001, "": 0.0, "_high": 0.001}
        return {f"{name}{end}": value + off for name, value in ratios.items() for end, off in spans.items()}

    return of_summary(figures(1.0, 1.0), figures(0.9, 1.3))


def make_dashboard(paint: float, delay: float, share: float, page: float, low: float) -> dict[str, float]:
    pages = {"first_paint_ms": paint, "event_to_screen_ms": delay, "server_cpu_share": share}
    ratio = {"": low + 0.01, "_low": low, "_high": low + 0.02}
    watched = {f"driver_overhead_ratio{end}": value for end, value in ratio.items()}
    return pages | {"fleet_page_ms": page} | watched


def make_moves() -> Made:
    def measured(bad: bool) -> Measurement:
        def both(keys: int, bins: int, fluid: float, at_once: float, end: float) -> list[object]:
            peaks = (1500.0, 1000.0) if bad else (1050.0, 1900.0)
            more = {"keys": keys, "bins": bins, "end": end}
            return [
                a_phase("all-at-once", 1, at_once, peak_rss_bytes=peaks[1], **more),
                a_phase("fluid", 1, fluid, peak_rss_bytes=peaks[0], **more),
                a_phase("batched", 1, fluid, peak_rss_bytes=peaks[0], **more),
            ]

        if bad:
            phases = [*both(1600, 16, 2.0, 4.0, 60.0), *both(3200, 16, 2.0, 3.0, 55.0)]
            phases += [*both(3200, 32, 9.0, 9.0, 60.0)]
        else:
            phases = [*both(1600, 16, 1.4, 40.0, 60.0), *both(3200, 16, 1.6, 50.0, 70.0)]
            phases += [*both(3200, 32, 1.55, 50.0, 70.0)]
        usual = LOADED.records_per_second
        grown = (9.0, 20.0, (1.0, 5.0, 1.0)) if bad else (1.5, 21.0, (1.0, 1.0, 1.0))
        loads = {
            usual // 4: loaded(1.4, 20.0),
            usual: loaded(1.45, 20.5),
            4 * usual: loaded(*grown[:2], steady=grown[2]),
        }
        if bad:
            loads[usual // 4] = loaded(2.0, 4.0)
        return summarise(Moves(phases, loads), [])

    return Made(measured(False), [measured(True)])


def loaded(fluid: float, at_once: float, steady: tuple[float, ...] = (1.0, 1.0, 1.0)) -> list[object]:
    more = {"keys": LOADED.keys, "bins": LOADED.bins, "steady": steady}
    return [a_phase("all-at-once", 1, at_once, **more), a_phase("fluid", 1, fluid, **more)]


def make_nexmark_moves() -> Made:
    def measured(slowest: dict[str, tuple[float, float]]) -> Measurement:
        steady = batches(1, 1, 1)
        phases = [
            QueryPhase(query, system, 50.0, 60.0, steady, batches(1, taken, start=50.0), 1000, bins=2)
            for query, both in slowest.items()
            for system, taken in zip(("all-at-once", "fluid"), both, strict=True)
        ]
        return Measurement([phase.make_row() for phase in phases], found=phases)

    stalling, calm = {"q3", "q4", "q5", "q6"}, {"q7", "q8"}
    good = dict.fromkeys(sorted(stalling), (40.0, 1.4)) | dict.fromkeys(sorted(calm), (1.2, 1.1))
    return Made(measured(good), [measured(dict.fromkeys(good, (5.0, 4.0)))])


def make_causes() -> Made:
    def measured(found: dict[str, str], driver: float) -> Measurement:
        causes = [
            MadeCause(
                name, 1.0, said, "an answer", {"flat-map 1: a": 0.6}, driver, 0.3, {"flat-map 1: a": 1.0}
            )
            for name, said in found.items()
        ]
        return Measurement([cause.make_row() for cause in causes], found=causes)

    names = ("flat-map", "count", "driver")
    return Made(
        measured({name: name for name in names}, 0.8),
        [measured(dict(zip(names, ("count", "flat-map", "tasks"), strict=True)), 0.2)],
    )


def hot(share: float, **changes: object) -> Skewed:
    values = {
        "share": share, "executors": 4, "even": batches(1.5), "skewed": batches(3, 3, 3),
        "settled": batches(2.4, 2.4, start=60.0), "bins_moved": 3, "imbalance": (1.5, 1.1),
        "hot_executor": "executor 1", "times_median": 9.0, "answer": "one task", "ds2": "busy",
        "participation": {"executor 1 slot 0": 0.7, "executor 2 slot 0": 0.1},
        "ds2_executors": 7, "veto": "waits for one task", "hot_seconds": 2.1,
    }  # fmt: skip
    return Skewed(**{**values, **changes})


def make_hot_keys() -> Made:
    def measured(**changes: object) -> Measurement:
        found = [hot(share, **changes) for share in (0.2, 0.3, 0.5, 0.7, 0.8)]
        return Measurement([one.make_row() for one in found], found=found)

    slower = {"settled": batches(4.0, start=60.0), "imbalance": (1.0, 1.2), "veto": ""}
    # the slowest task is that of the hot bin, and participation points elsewhere
    return Made(measured(), [measured(hot_executor="executor 2", **slower)])


def make_convergence() -> Made:
    def measured(first: Convergence, second: Convergence) -> Measurement:
        found = [first, second]
        return Measurement([one.make_row() for one in found], found=found)

    good = measured(Convergence(1, 1, (2,), 2), Convergence(1, 5, (2,), 2))
    # as large as can be from both starts, in one step: of no use either
    return Made(
        good,
        [
            measured(Convergence(1, 1, (5,), 5), Convergence(1, 5, (), 5)),
            measured(Convergence(1, 1, (2, 3, 2, 3, 2), 2), Convergence(1, 5, (4,), 4)),
        ],
    )


def make_sizing() -> Made:
    row = {"case": "heap", "start": "over", "actions": 2, "pause_seconds": 12.4, "final_over_optimal": 1.05,
           "memory_downs": 1, "undone": 0, "sizing_seconds": 90.0, "settled": 1, "lost_after_decrease": 0,
           "course": "P6", "stalls": 0, "optimal_heap_within_mb": 10.0}  # fmt: skip
    bad = {"final_over_optimal": 1.5, "memory_downs": 2, "undone": 1, "settled": 0, "lost_after_decrease": 1}
    return Made(summarise_sizes([row]), [summarise_sizes([{**row, **bad}])])


def make_faults() -> Made:
    def measured(row: Row, cells: int = 1) -> Measurement:
        return Measurement([row], summarise_matrix([row], cells))

    changes = (
        {"output_equal": False},
        {"actions_doubled": 1},
        {"actions_lost": 1},
        {"job_alive": False},
        {"seconds_to_recover": None},
    )
    return Made(
        measured(fault_row()), [*(measured(fault_row(**one)) for one in changes), measured(fault_row(), 2)]
    )


def make_field() -> Made:
    def measured(rows: list[Row]) -> Measurement:
        return Measurement(rows, summarise_field(rows))

    changes = [
        {"final_executors": 5},
        {"final_executors": 2},
        {"most_requested": 134, "steps": 3, "seconds_to_first_decision": 130.0, "prediction_error": 0.6},
        {"seconds_to_release_when_idle": 81.0, "output_equal": False},
    ]
    bad = [measured([field_row(**change), *day_rows(share=0.7, late=0.1)]) for change in changes]
    return Made(measured([field_row(), *day_rows()]), bad)


def make_nexmark() -> Made:
    def measured(rate: float | None, share: float, generator: float) -> Measurement:
        rows = [{"sustained_records_per_s": rate, "generator_share": share}]
        return Measurement(rows, {"generator_events_per_s": generator})

    return Made(measured(1e5, 0.1, 5e6), [measured(None, 0.9, 1e6)])


def make_splitting() -> Made:
    def rows(ratio: float) -> list[Row]:
        return [{"case": "kafka", "system": "fused pipeline, kafka", "cost_ratio": ratio},
                {"case": "files", "system": "pipeline, files", "cost_ratio": ratio}]  # fmt: skip

    return Made(Measurement(rows(1.2)), [Measurement(rows(2.1))])


def make_autrascale() -> Made:
    ours = {"system": "autrascale", "target_s": 2.0, "first_size": 4, "second_size": 5, "first_trials": 6,
            "second_trials": 2, "first_latency_s": 1.8, "second_latency_s": 1.9, "transferred_trials": 2,
            "chosen_by_improvement": 3}  # fmt: skip
    wasteful = {**ours, "first_size": 7, "second_size": 6, "first_latency_s": 1.0, "second_latency_s": 1.0}
    others = [{**wasteful, "system": system} for system in ("drs", "ds2")]
    failing = {**ours, "first_latency_s": 2.1, "second_latency_s": None, "transferred_trials": 0,
               "chosen_by_improvement": 0}  # fmt: skip
    dearer = {**ours, "first_size": 9, "second_size": 9}
    cases = [[{**row, "case": case} for case in ("query", "pipeline") for row in (mine, *others)]
             for mine in (ours, failing, dearer)]  # fmt: skip
    return Made(Measurement(cases[0]), [Measurement(rows) for rows in cases[1:]])


def make_days() -> Made:
    def measured(**changes: float) -> Measurement:
        rows = [
            *a_case_of_rows("nights", "linear", ds2=changes),
            *a_case_of_rows("ramp", "micro-batch", ds2=changes),
            *a_case_of_rows("ramp", "linear", dies=True, ds2=changes),
        ]
        return Measurement(rows, summarise_days(rows, "ds2"))

    worse = {"over_ratio": 0.9, "held_ratio": 1.9, "short_ratio": 0.01, "late_ratio": 0.01, "peak_share": 0.7}
    late = measured(**worse, second_spike_late_s=60)
    # changes are compared with those of ds2, so that another policy has to be the default to make more
    rows = a_case_of_rows("ramp", "linear", ahead={"steps": 30})
    return Made(measured(), [late, Measurement(rows, summarise_days(rows, "ahead"))])


TRIGGERED = {"case": "kafka", "system": "fused", "trigger_s": 0.2, "mean_latency_s": 0.8}
SEAMLESS = {"system": "between batches", "slower_than_p99": 0}
FLEET = {"applications": 100_000, "seconds_per_round": 6.0, "peak_rss_bytes": 3e9, "growth_exponent": 1.0}

OUTCOMES: dict[str, Made] = {
    "heron": make_heron(),
    "two-phases": make_two_phases(),
    "convergence": of_rows([CURVE], {"decided": (21, 25), "final": 25}),
    "accuracy": of_rows(SIZES, {"share_read": 1.0}),
    "skew": of_rows([SKEWED], {"final": {"flatmap": 10, "count": 30}, "steps": 3}),
    "image-pipeline": make_images(simulated=True),
    "autrascale-latency": make_latency_targets(),
    "autrascale-rates": make_other_rates(),
    "decision": of_summary(
        {"seconds_at_100_operators": 0.0004, "growth_exponent": 1.05},
        {"seconds_at_100_operators": 0.001, "growth_exponent": 1.2},
    ),
    "autrascale-cost": make_costs(),
    "event-log": of_summary(
        {"seconds_per_126000_tasks": 5.0, "peak_memory_bytes": 5e8, "seconds_per_mb_over_half": 1.1},
        {"seconds_per_126000_tasks": 7.0, "peak_memory_bytes": 1e9, "seconds_per_mb_over_half": 1.5},
    ),
    "answers": of_summary(
        {"logs": 40, "right_share": 0.96, "median_error": 0.1, "predicted_share": 1.0},
        {"logs": 39, "right_share": 0.94, "median_error": 0.2, "predicted_share": 0.9},
    ),
    "diagnosis-tables": make_tables(),
    "simulator": of_summary(
        {"model_day_seconds": 0.2, "day_seconds": 0.6}, {"model_day_seconds": 1.0, "day_seconds": 1.5}
    ),
    "dashboard": of_summary(
        make_dashboard(300.0, 1200.0, 0.008, 120.0, 0.99),
        make_dashboard(1500.0, 1600.0, 0.02, 600.0, 1.02),
    ),
    "policies": make_policies(),
    "days": make_days(),
    "word-count": make_word_count(),
    "faults": make_faults(),
    "field": make_field(),
    "word-count-functions": make_functions(),
    "overhead": make_overhead(),
    "migration": make_moves(),
    "migration-queries": make_nexmark_moves(),
    "bottlenecks": make_causes(),
    "hot-keys": make_hot_keys(),
    "what-if": of_summary({"median_error": 0.05}, {"median_error": 0.1}),
    "image-pipeline-cluster": make_images(simulated=False),
    "seamless": of_rows([SEAMLESS], {"slower_than_p99": 1}),
    "kafka": make_splitting(),
    "image-triggers": of_rows([TRIGGERED], {"mean_latency_s": 1.2}),
    "autrascale-cluster": make_autrascale(),
    "convergence-cluster": make_convergence(),
    "nexmark": make_nexmark(),
    "fleet": of_summary(FLEET, {"seconds_per_round": 11.0, "peak_rss_bytes": 9e9, "growth_exponent": 1.3}),
    "sizing": make_sizing(),
}
"""Name of a part → its made outcomes; `test_every_verdict` asks for one of each part."""
