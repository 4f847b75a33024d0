"""Parts that run in the simulator: the same loop code in virtual time, with capacities from the papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import Hold
from penstock.evidence.findings import (
    Chart,
    Finding,
    PartResult,
    Verdict,
    agreed,
    incomparable,
    judged,
    steps_judged,
)
from penstock.simulate.comparison import Comparison, compare
from penstock.simulate.experiment import Experiment
from penstock.simulate.loading import load
from penstock.simulate.run import Run, run_policy, simulate
from penstock.simulate.virtual import LATENCY, READ

Progress = Callable[[str], None]

SIMULATED = "simulated, virtual time, seed 0"
FITTED = "simulated; capacities are tables fitted to the paper's decisions, so only the stepping is tested"
HELD = (
    "simulated; capacities are tables fitted to the paper's decisions, so this shows what too small a size "
    "does, not that the least one is found"
)

TABLE_4: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "q1": {8: (12, 16), 12: (16,), 16: (), 20: (16,), 24: (16,), 28: (16,)},
    "q2": {8: (11, 13, 14), 12: (14,), 16: (12, 14), 20: (13, 14), 24: (14,), 28: (14,)},
    "q3": {8: (16, 20), 12: (18, 20), 16: (20,), 20: (), 24: (20,), 28: (20,)},
    "q5": {8: (14, 15, 16), 12: (16,), 16: (), 20: (14, 16), 24: (14, 16), 28: (13, 16)},
    "q8": {8: (10,), 12: (10,), 16: (8, 10), 20: (8, 10), 24: (8, 10), 28: (8, 10)},
    "q11": {8: (12, 22, 28), 12: (22, 28), 16: (26, 28), 20: (28,), 24: (28,), 28: ()},
}
"""DS2, table 4: query → initial parallelism → sizes decided in turn; none where the first one fits."""

ONE_STEP = "within one step counts as the same"
FAR_LONGER = 10
RATE_HALVES_SECONDS = 800
"""Of the scenario flink-two-phases, as in the paper."""


def heron(_quick: bool, progress: Progress) -> PartResult:
    """DS2 figures 1 and 6: one step against Dhalion's six."""
    comparison = compare(load("dhalion-wordcount"), ["ds2", "dhalion"], 0, progress)
    ds2, dhalion = _runs(comparison)
    findings = [
        steps_judged("steps of DS2", 1, ds2["steps"], baseline=f"dhalion: {dhalion['steps']}"),
        *(
            least_instances(
                f"instances of {name}, DS2",
                published,
                ds2["final_parallelism"][name],
                f"dhalion: {dhalion['final_parallelism'][name]}",
            )
            for name, published in (("flatmap", 10), ("count", 20))
        ),
        judged("steps of Dhalion, the baseline", 6, dhalion["steps"], tolerance=0.2, why=ONE_STEP),
        _dhalion_time(ds2["actions"], dhalion["actions"]),
        _dhalion_size(dhalion["final_parallelism"]),
    ]
    charts = _steps_charts("figure 6", "figure 1", comparison)
    return PartResult([simulated(one) for one in findings], charts)


def least_instances(result: str, published: int, held: int, baseline: str) -> Finding:
    """What was published is the least that keeps up: fewer are no success."""
    found = judged(result, published, held, tolerance=0, baseline=baseline)
    if found.verdict is Verdict.BETTER:
        return replace(found, verdict=Verdict.WORSE, why="fewer than the least that keep up")
    return found


def _dhalion_time(ds2: Sequence[Mapping[str, Any]], dhalion: Sequence[Mapping[str, Any]]) -> Finding:
    ours, theirs = (max((one["ended_at"] for one in actions), default=0.0) for actions in (ds2, dhalion))
    said = f"{theirs:.0f} s, DS2 {ours:.0f} s"
    why = f"{FAR_LONGER} times counts as far"
    agrees = theirs >= FAR_LONGER * ours
    return agreed("Dhalion takes far longer to its last size", "2,000 s, DS2 60 s", said, agrees, why=why)


def _dhalion_size(sizes: Mapping[str, int]) -> Finding:
    ours = f"{sizes['flatmap']} and {sizes['count']}"
    agrees = sizes["flatmap"] > 10 and sizes["count"] > 20
    why = "" if agrees else "the baseline holds no more than it needs here, where capacities are exact"
    return agreed("Dhalion holds more than it needs", "22 and 30", ours, agrees, why=why)


def two_phases(_quick: bool, progress: Progress) -> PartResult:
    """DS2 figure 7: the word count on Flink when the rate halves."""
    comparison = compare(load("flink-two-phases"), ["ds2"], 0, progress)
    (ds2,) = _runs(comparison)
    early = sum(one["at"] < RATE_HALVES_SECONDS for one in ds2["actions"])
    why = "sizes before the last of a phase differ, since the simulated capacity is not Flink's"
    findings = [
        steps_judged("steps in the first phase, up", 2, early),
        steps_judged("steps in the second phase, down", 2, len(ds2["actions"]) - early, why=why),
        *_phase_sizes(ds2["actions"], early),
    ]
    charts = _steps_charts("figure 7", "figure 7", comparison)
    return PartResult([simulated(one) for one in findings], charts)


def _phase_sizes(actions: Sequence[Mapping[str, Any]], early: int) -> list[Finding]:
    """What is held when each phase ends; the capacities are fitted to the first."""
    first, second = (
        " and ".join(str(part[-1]["to"][name]) for name in ("flatmap", "count")) if part else "no step"
        for part in (actions[:early], actions[early:])
    )
    why = "capacities are fitted to the first phase, and those of Flink change with more than the instances"
    return [
        agreed("FlatMap and Count after the first phase", "19 and 11", first, first == "19 and 11"),
        incomparable("FlatMap and Count after the second phase", "7 and 5", second, why),
    ]


def convergence(quick: bool, progress: Progress) -> PartResult:
    """DS2 table 4: six queries from six initial sizes."""
    queries = ("q1", "q5", "q11") if quick else tuple(TABLE_4)
    findings = []
    for query in queries:
        experiment = load(f"table4-{query}")
        for initial, published in TABLE_4[query].items():
            progress(f"{query} from {initial}")
            run = simulate(experiment.starting_with({"main": initial}), "ds2")
            ours = tuple(int(action.planned["main"]) for action in run.actions)
            same_end = (ours or (initial,))[-1] == (published or (initial,))[-1]
            agrees = same_end and len(ours) <= len(published)
            name = f"{query.upper()} from {initial}"
            findings.append(agreed(name, _path(published), _path(ours), agrees, conditions=FITTED))
    note = "The part convergence-cluster steps the same queries on a real cluster, between sizes that it has."
    return PartResult(findings, notes=[note])


def accuracy(quick: bool, progress: Progress) -> PartResult:
    """DS2 figure 8: the chosen size keeps up, one smaller does not, one larger brings little."""
    queries = ("q1", "q11") if quick else tuple(TABLE_4)
    findings, shares, latencies = [], [], []
    for query in queries:
        experiment, chosen = load(f"table4-{query}"), TABLE_4[query][8][-1]
        runs = {}
        for size in (chosen - 1, chosen, chosen + 1):
            progress(f"{query} with {size}")
            runs[size] = _held(experiment, size)
        late = {size: float(np.median(run.seen[-60:, LATENCY])) for size, run in runs.items()}
        findings.append(_sizes_beside(query.upper(), chosen, runs, late))
        shares.append((query.upper(), ["-1", "chosen", "+1"], [_share_read(run) for run in runs.values()]))
        latencies.append((query.upper(), ["-1", "chosen", "+1"], list(late.values())))
    rates, times = "share of the offered rate", "median latency, s"
    charts = [
        Chart("figure 8: what the source reads", "instances", rates, shares, bars=True),
        Chart("figure 8: latency", "instances", times, latencies, bars=True, logarithmic="y"),
    ]
    return PartResult(findings, charts)


def _sizes_beside(query: str, chosen: int, runs: Mapping[int, Run], late: Mapping[int, float]) -> Finding:
    keeps = {size: _keeps_up(run) for size, run in runs.items()}
    agrees = not keeps[chosen - 1] and keeps[chosen] and keeps[chosen + 1]
    ours = ", ".join(
        f"{size}: {'keeps up' if keeps[size] else 'falls behind'}, {_latency(late[size])}" for size in runs
    )
    why = "with the median latency of the last minute"
    return agreed(query, f"{chosen} is the least that keeps up", ours, agrees, why=why, conditions=HELD)


def _latency(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 0.001 else "below 1 ms"


class _StaySame:
    """A policy that leaves the size as it is."""

    name = "stay"

    def propose(self, _window: ApplicationWindow) -> Hold:
        return Hold("the size is given")


def _held(experiment: Experiment, size: int) -> Run:
    return run_policy(experiment.starting_with({"main": size}), _StaySame())


def _keeps_up(run: Run) -> bool:
    """Whether what is offered is read: sources here are held back, not queued."""
    return _share_read(run) >= 0.999


def _share_read(run: Run) -> float:
    """Of what is offered in the second half of the run."""
    half = run.experiment.seconds // 2
    return float(run.seen[half:, READ].sum() / run.experiment.offered[half:].sum())


def _runs(comparison: Comparison) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = comparison.to_json()["policies"]
    return runs


def simulated(finding: Finding) -> Finding:
    """The finding with the conditions of every simulated part."""
    return replace(finding, conditions=SIMULATED)


def _path(sizes: tuple[int, ...]) -> str:
    return " → ".join(map(str, sizes)) or "no step"


def _steps_charts(figure: str, read_figure: str, comparison: Comparison) -> list[Chart]:
    """Parallelism over time, one line a scaled operator and policy; and what is read of what is offered."""
    seconds = sampled(comparison)
    read = [(run.policy, seconds, floats(run.seen[seconds, READ])) for run, _ in comparison.runs]
    offered = floats(comparison.experiment.offered[seconds].sum(axis=1))
    rates = [*read, ("offered", seconds, offered)]
    title = f"{read_figure}: what the source reads"
    return [_sizes_chart(figure, comparison), Chart(title, "seconds", "records a second", rates)]


def sampled(comparison: Comparison) -> list[int]:
    """Some 400 seconds of the run: more than a plot can show is not kept."""
    return list(range(0, comparison.experiment.seconds, max(1, comparison.experiment.seconds // 400)))


def floats(values: Any) -> list[float]:
    """Numbers of a run as a chart keeps them."""
    return [round(float(value), 3) for value in values]


def _sizes_chart(figure: str, comparison: Comparison) -> Chart:
    end = float(comparison.experiment.seconds)
    series = []
    for run in _runs(comparison):
        for name in run["final_parallelism"]:
            changes = [action for action in run["actions"] if name in action["to"]]
            if not changes:
                continue
            times = [0.0, *(action["ended_at"] for action in changes), end]
            sizes = [changes[0]["from"].get(name, 0), *(action["to"][name] for action in changes)]
            if len(set(sizes)) == 1:
                continue  # a source, which nobody scales
            held = [float(size) for size in [*sizes, sizes[-1]]]
            series.append((f"{run['policy']}, {name}", times, held))
    return Chart(f"{figure}: parallelism over time", "seconds", "instances", series, steps=True)
